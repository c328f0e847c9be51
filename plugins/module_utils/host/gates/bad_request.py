"""Is a request that cannot be served refused, and the next good one served?"""

from __future__ import annotations

from ..http import HttpError
from .run import FAILED, PASSED, SKIPPED


def gate(run):
    """A prompt longer than the context gets a 4xx, and the server goes on serving."""
    if run.context is None:
        return SKIPPED, "the context length is neither declared nor told", {}
    if "--allow-auto-truncate" in run.release["argv"]:
        return SKIPPED, "prompts that are too long are cut (--allow-auto-truncate)", {}
    prompt = [1] * (run.context + 1)  # token ids: as many tokens as they are, whatever the tokenizer
    try:
        answer = run.complete(prompt, 1)
    except HttpError as error:
        if not 400 <= error.status < 500:
            return FAILED, f"a prompt longer than the context got no refusal: {error}", {}
        evidence = {"tokens": len(prompt), "refusal": str(error)[:300]}
    else:
        tokens = answer.prompt_tokens
        return FAILED, f"a prompt of {len(prompt)} tokens was served as {tokens}, context is {run.context}", {}
    run.complete("Hello", 1)
    return PASSED, f"{len(prompt)} tokens are refused, and the next request is served", evidence
