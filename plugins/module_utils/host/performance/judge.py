"""The bounds that a release has to keep, and whether measured figures keep them. Pure functions."""

from __future__ import annotations

import statistics
from typing import NamedTuple

from . import noise
from .figures import KINDS, text


class Bound(NamedTuple):
    """The worst accepted median of a figure, and where it comes from."""

    value: float
    against: str  # "floor" or "baseline"
    reference: float
    allowed: float  # the drop below the reference, as a fraction
    release: int | None  # the release that the baseline is of
    starts: int  # that the spread is known from


def bounds(settings, baseline):
    """Bound by name of figure: the declared floor, else what the baseline and its noise allow; none where neither is.

    `settings` is verify.performance; `baseline` is what baselines.comparable gives, or None.
    """
    found = {}
    for name, kind in KINDS.items():
        floor = settings["floors"].get(name)
        medians = _medians(name, baseline["starts"]) if baseline else []
        of_reference = _medians(name, baseline["reference"]) if baseline else []
        if floor is not None:
            found[name] = Bound(floor, "floor", floor, 0.0, None, 0)
        elif settings["compare"] and kind.compared and of_reference:
            reference = statistics.median(of_reference)
            assumed = settings["start_spread"] * kind.part
            drop = noise.allowed(medians, len(of_reference), settings["tolerance"], assumed)
            if kind.more_is_better:
                worst = reference * (1 - drop)
            else:
                worst = max(reference / (1 - drop), reference + kind.slack)
            found[name] = Bound(worst, "baseline", reference, drop, baseline["release"], len(medians))
    return found


def _medians(name, starts):
    return [start["figures"][name] for start in starts if name in start["figures"]]


def judged(name, value, bound):
    """One figure against its bound, as plain data."""
    kind = KINDS[name]
    passed = value >= bound.value if kind.more_is_better else value <= bound.value
    found = {**bound._asdict(), "median": value, "passed": passed}
    found["bound"] = found.pop("value")
    found["drop"] = noise.drop(value, bound.reference, kind.more_is_better)
    return {key: round(item, 6) if isinstance(item, float) else item for key, item in found.items()}


def sentence(name, found):
    """What a judged figure says, for a person."""
    value, reference = text(name, found["median"]), text(name, found["reference"])
    if found["against"] == "floor":
        worst = "at least" if KINDS[name].more_is_better else "at most"
        return f"{KINDS[name].words} {value}, declared is {worst} {reference}"
    change = "{:.0f} % {}".format(abs(found["drop"]) * 100, "worse" if found["drop"] > 0 else "better")
    return "{} {}, {} than {} of release {}{}".format(
        KINDS[name].words,
        value,
        change,
        reference,
        found["release"],
        "" if found["passed"] else " (up to {:.0f} % may be noise)".format(found["allowed"] * 100),
    )
