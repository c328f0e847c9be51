"""Are prompts with known answers answered right, and does the text look like a model's at all?"""

from __future__ import annotations

import json
import re

from .. import completions, reference, sanity
from ..errors import DamagedError
from .run import FAILED, PASSED

STREAM_TOKENS = 32
NEEDLE = "heliotrope-7352"
SAMPLE_LINES = 8
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class WrongError(Exception):
    """An answer is not what it must be."""


def gate(run):
    """Known answers, a long prompt, a whole stream, and the answers of the release that was committed before."""
    evidence = {"asked": []}
    try:
        for prompt in run.verify["prompts"]:
            _known(run, prompt, evidence["asked"])
        _stream(run, evidence)
        _long(run, evidence)
        _reference(run, evidence)
    except WrongError as error:
        return FAILED, str(error), evidence
    count = len(evidence["asked"])
    return PASSED, f"{count} prompt{'s' if count != 1 else ''} answered as expected", evidence


def _known(run, prompt, asked):
    mode, words, options = prompt["mode"], prompt["prompt"], {}
    if mode == "json":
        options["response_format"] = {"type": "json_object"}
    elif mode == "tool":
        options.update(tools=[_TOOL], tool_choice="auto")
    kind = completions.complete if mode == "completion" else completions.chat
    answer = run.patiently(kind, words, prompt["max_tokens"], **options)
    text = _arguments(answer, words) if mode == "tool" else answer.text
    asked.append({"prompt": words, "answer": text[:200], "tokens": answer.tokens, "finish": answer.finish})
    _sane(run, words, text)
    if mode == "json":
        try:
            json.loads(text)
        except ValueError:
            what = f"{words!r} was answered with {text[:80]!r} in JSON mode, which is not JSON{_hint(answer, mode)}"
            raise WrongError(what) from None
    if not re.search(prompt["expect"], text):
        expected = f"which does not match {prompt['expect']!r}{_hint(answer, mode)}"
        raise WrongError(f"{words!r} was answered with {text[:80]!r}, {expected}")


def _hint(answer, mode):
    thinking = answer.finish == "length" and mode != "completion"
    return " (the model may still have been thinking: raise max_tokens)" if thinking else ""


def _arguments(answer, words):
    """Arguments of the one call of the tool that was offered, as text."""
    for call in answer.calls:
        function = call.get("function") or {}
        if function.get("name") == "get_weather":
            try:
                json.loads(function.get("arguments") or "")
            except ValueError:
                arguments = function.get("arguments")
                raise WrongError(f"{words!r}: the arguments of the tool call are no JSON: {arguments!r}") from None
            return function["arguments"]
    raise WrongError(f"{words!r} was answered with {answer.text[:80]!r} and not with a call of the tool get_weather")


def _sane(run, words, text):
    fault = sanity.degenerate(text) if run.verify["quality"] else None
    if fault:
        raise WrongError(f"{words[:60]!r} was answered with {fault}: {text[:60]!r}")


def _stream(run, evidence):
    """A stream of fixed length comes whole: with ignore_eos every token asked for has to be there."""
    prompt = "The sea was calm that morning, and the boats"  # unfinished: a whole sentence may end an answer at once
    answer = run.patiently(completions.stream, prompt, STREAM_TOKENS, ignore_eos=True)
    evidence["stream"] = {"answer": answer.text[:200], "tokens": answer.tokens, "finish": answer.finish}
    _sane(run, prompt, answer.text)
    if answer.tokens is not None and answer.tokens != STREAM_TOKENS:
        raise WrongError(f"a stream of {STREAM_TOKENS} tokens ended after {answer.tokens}")
    if not answer.text.strip() and run.verify["quality"]:
        raise WrongError(f"a stream of {STREAM_TOKENS} tokens had no text")


def long_prompt(count):
    """A prompt of so many lines, no two alike, with one more to find again in the middle."""
    lines = [f"Note {n}: {7 * n % 997} crates were moved to shelf {11 * n % 89}." for n in range(1, count + 1)]
    lines.insert(count // 2, f"The secret word is {NEEDLE}.")
    return "\n".join([*lines, "Question: What is the secret word?", "Answer: The secret word is"])


def _long(run, evidence):
    """A real prefill: the model has to find a word again in the middle of a long prompt."""
    tokens = min(run.verify["long_prompt"], (run.context or 2048) // 2)
    if not tokens:
        return
    # Tokenizers make 10 to 40 tokens of a line, so this one is asked: the prompt must be long, and must fit.
    sample = run.complete(long_prompt(SAMPLE_LINES), 1).prompt_tokens or 48 * SAMPLE_LINES
    answer = run.complete(long_prompt(max(2, tokens * SAMPLE_LINES // sample)), 16)
    evidence["long"] = {"prompt_tokens": answer.prompt_tokens, "answer": answer.text[:200]}
    _sane(run, "a long prompt", answer.text)
    if run.verify["quality"] and NEEDLE.split("-")[1] not in answer.text:
        raise WrongError(
            f"a prompt of {answer.prompt_tokens} tokens was answered with {answer.text[:80]!r}: "
            f"the word in its middle ({NEEDLE}) was not found again"
        )


def _reference(run, evidence):
    if not run.verify["quality"]:
        return
    for prompt in reference.PROMPTS:
        answer = run.complete(prompt, reference.TOKENS)
        _sane(run, prompt, answer.text)
        run.reference[prompt] = answer.text
    evidence["reference"] = run.reference
    try:
        before = reference.recorded(run.release)
    except DamagedError as error:
        evidence["reference_note"] = str(error)  # a lost reference is no fault of the model
        return
    if before and reference.differs(before["answers"], run.reference):
        prompt = reference.PROMPTS[0]
        raise WrongError(
            "no answer agrees with those of {} for the same model: {!r} is followed by {!r}, was {!r}".format(
                before["engine"], prompt, run.reference[prompt][:60], before["answers"].get(prompt, "")[:60]
            )
        )
