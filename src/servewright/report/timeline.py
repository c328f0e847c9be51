"""The steps of a transaction on a time axis."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

_FINAL = ("committed", "restored", "rollback_failed")


class Bar(NamedTuple):
    """One step: from `start` for `seconds`, with what it is called; both also as percent of the whole."""

    step: str
    note: str
    start: float
    seconds: float
    left: float
    width: float
    back: bool
    """Whether it belongs to the way back."""


class Timeline(NamedTuple):
    """All steps, and for how long nothing served (None: the service was never stopped, or never came back)."""

    bars: list[Bar]
    seconds: float
    down: float | None
    begin: str


def timeline(steps: Sequence[dict[str, Any]]) -> Timeline | None:
    """The time line of a journal's steps, each lasting until the next; None without at least two that have a time."""
    known = [(step, when) for step in steps if (when := _time(step.get("time"))) is not None]
    if len(known) < 2:
        return None
    begin = known[0][1]
    # A host may set its clock while a transaction runs; a step does not last less than nothing for it.
    offsets = [max(0.0, (when - begin).total_seconds()) for _, when in known]
    whole = max(offsets) or 1.0
    bars, back = [], False
    for (step, _), start, end in zip(known, offsets, [*offsets[1:], offsets[-1]], strict=True):
        name = str(step.get("step"))
        back = back or name == "rolling_back"
        seconds = 0.0 if name in _FINAL else max(0.0, end - start)
        note = f"release {step['release']}" if step.get("release") is not None else ""
        bars.append(Bar(name.replace("_", " "), note, start, seconds, 100 * start / whole, 100 * seconds / whole, back))
    down = _down([str(step.get("step")) for step, _ in known], offsets)
    return Timeline(bars, max(offsets), down, begin.strftime("%Y-%m-%d %H:%M:%S %Z"))


def _down(names: Sequence[str], offsets: Sequence[float]) -> float | None:
    """From the first stop to the last time that gates began after it: what they are asked, it serves."""
    if "stopping" not in names or "verifying" not in names:
        return None
    stop = names.index("stopping")
    serves = len(names) - 1 - names[::-1].index("verifying")
    if offsets[serves] < offsets[stop] or names[-1] == "rollback_failed":
        return None
    return offsets[serves] - offsets[stop]


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
