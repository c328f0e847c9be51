"""Are prompts with known answers answered right?"""

from __future__ import annotations

import re

from .. import ready
from .run import FAILED, PASSED


def gate(run):
    """Prompts with known answers are answered right."""
    verify = run.release["verify"]
    asked = []
    for prompt in verify["prompts"]:
        text = ready.completion(
            run.release, run.http, prompt["prompt"], prompt["max_tokens"], verify["request_timeout"]
        )
        asked.append({"prompt": prompt["prompt"], "answer": text[:200]})
        if not re.search(prompt["expect"], text):
            return (
                FAILED,
                "{!r} was answered with {!r}, which does not match {!r}".format(
                    prompt["prompt"], text[:80], prompt["expect"]
                ),
                {"asked": asked},
            )
    return PASSED, f"{len(asked)} prompt{'s' if len(asked) != 1 else ''} answered as expected", {"asked": asked}
