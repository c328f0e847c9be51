"""Are drafted tokens accepted?"""

from __future__ import annotations

from .. import load
from ..http import HttpError
from .engine import from_info
from .run import FAILED, PASSED, SKIPPED

PROMPTS = ("Count from one to fifty in words: one, two, three,", "The days of the week, over and over: Monday,")
TOKENS = 128


def gate(run):
    """The mean number of tokens a step, over some answers, is at least `verify.min_accept_length`."""
    floor = run.verify["min_accept_length"]
    if floor is None:
        return PASSED, "no floor declared", {}
    names = run.release["acceptance"]
    before = _counters(run, names)
    for prompt in PROMPTS:
        run.complete(prompt, TOKENS, ignore_eos=True)
    length, over = measured(before, _counters(run, names)), ""
    if length is None and names.get("info"):
        values = from_info(run.get(run.release["endpoints"]["info"]), names["info"])
        length = sum(values) / len(values) if values else None
        over = " over all that was asked since the start: this version does not count steps"
    if length is None:
        return SKIPPED, "the engine does not report it", {}
    evidence = {"accept_length": round(length, 3), "floor": floor}
    if length < floor:
        return FAILED, f"{length:.2f} tokens a step are accepted{over}, declared are at least {floor:g}", evidence
    return PASSED, f"{length:.2f} tokens a step are accepted{over}", evidence


def _counters(run, names):
    try:
        return load.parse(run.http.text("/metrics", timeout=5), names.get("metrics", {}))
    except HttpError:
        return {}


def measured(before, after):
    """Tokens a step between two looks at the counters, or None when nothing was drafted.

    Engines count all `tokens` and `steps`, or the `accepted` ones of `drafts`, to which a step adds one of its own.
    """
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    if grown.get("steps", 0) > 0:
        return grown.get("tokens", 0) / grown["steps"]
    return 1 + grown.get("accepted", 0) / grown["drafts"] if grown.get("drafts", 0) > 0 else None
