"""Times of several rounds put together, and two of them compared with their spread in mind."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from .record import Timing

NOISE = 0.01
"""Differences below this part are never called a difference."""

Key = tuple[str, str, int]
"""Case, collective, bytes."""


class MethodError(ValueError):
    """Times that were not measured in the same way were put side by side."""


@dataclass(frozen=True)
class Summary:
    """Microseconds: the median over rounds of each round's median, and how far from it times lie.

    low and high are the range over rounds or a typical round's 10th and 90th percentile, whichever is wider: two or
    three starts show too little of how starts differ, and one disturbed start must not hide a difference.
    calls: per graph.
    """

    median: float
    low: float
    high: float
    rounds: int
    correct: bool
    calls: int = 1

    @property
    def spread(self) -> float:
        """Half of low to high as a part of the median."""
        return (self.high - self.low) / 2 / self.median


def summarise(timings: Iterable[Timing]) -> dict[Key, Summary]:
    """Raises MethodError."""
    grouped: dict[Key, list[Timing]] = {}
    for timing in timings:
        grouped.setdefault((timing.case, timing.collective, timing.bytes), []).append(timing)
    return {key: _summary(rows) for key, rows in grouped.items()}


def _summary(rows: list[Timing]) -> Summary:
    medians = [row.median for row in rows]
    calls = same_method({row.calls for row in rows}, f"{rows[0].case} at {rows[0].bytes} bytes")
    return Summary(
        median=statistics.median(medians),
        low=min(*medians, statistics.median(row.p10 for row in rows)),
        high=max(*medians, statistics.median(row.p90 for row in rows)),
        rounds=len(rows),
        correct=all(row.correct for row in rows),
        calls=calls,
    )


def same_method(calls: set[int], what: str) -> int:
    """The one number of calls per graph. Raises MethodError."""
    if len(calls) > 1:
        raise MethodError(
            f"{what} was measured with {' and '.join(map(str, sorted(calls)))} calls per graph; "
            "such times do not compare: measure all of it in one run"
        )
    return calls.pop()


def levelled(timings: Iterable[Timing]) -> list[Timing]:
    """Times freed of what a start does to all of its cases alike.

    For trials on one communicator: a round's times at a size are scaled so that their geometric mean over the cases
    that every round has is that of all rounds. Where no case is in every round, times stay as they are.
    """
    grouped: dict[tuple[str, int], list[Timing]] = {}
    for timing in timings:
        grouped.setdefault((timing.collective, timing.bytes), []).append(timing)
    found: list[Timing] = []
    for rows in grouped.values():
        rounds = {row.round for row in rows}
        by_case: dict[str, set[int]] = {}
        for row in rows:
            by_case.setdefault(row.case, set()).add(row.round)
        common = {case for case, seen in by_case.items() if seen == rounds}
        if not common:
            found += rows
            continue
        logs: dict[int, list[float]] = {}
        for row in rows:
            if row.case in common:
                logs.setdefault(row.round, []).append(math.log(row.median))
        levels = {number: statistics.fmean(values) for number, values in logs.items()}
        overall = statistics.fmean(levels.values())
        for row in rows:
            scale = math.exp(overall - levels[row.round])
            found.append(replace(row, median=row.median * scale, p10=row.p10 * scale, p90=row.p90 * scale))
    return found


@dataclass(frozen=True)
class Paired:
    """One case's time as a part of another's in the same round: the median over rounds, and how sure it is.

    low to high holds the true median with 95 % confidence, by the order of the ratios alone; with fewer than six
    rounds nothing does, and they are the range.
    """

    ratio: float
    low: float
    high: float
    rounds: int


def paired(timings: Iterable[Timing], one: str, other: str, collective: str, size: int) -> Paired | None:
    """None when no round has both. Raises MethodError."""
    times: dict[str, dict[int, Timing]] = {one: {}, other: {}}
    for timing in timings:
        if timing.case in times and (timing.collective, timing.bytes) == (collective, size):
            times[timing.case][timing.round] = timing
    rounds = sorted(times[one].keys() & times[other].keys())
    if not rounds:
        return None
    used = [times[case][number] for case in (one, other) for number in rounds]
    same_method({timing.calls for timing in used}, f"{one} or {other} at {size} bytes")
    ratios = sorted(times[one][number].median / times[other][number].median for number in rounds)
    out = _outside(len(ratios))
    return Paired(statistics.median(ratios), ratios[out], ratios[-1 - out], len(ratios))


def _outside(count: int) -> int:
    """How many of that many ordered values may be left out on either side of a 95 % interval of the median."""
    tail, out = 0.0, 0
    while out < count // 2:
        tail += math.comb(count, out) / 2**count
        if tail > 0.025:
            break
        out += 1
    return max(0, out - 1)


Verdict = Literal["faster", "slower", "same", "wrong"]


@dataclass(frozen=True)
class Comparison:
    """How a case does against another: ratio of their times, below 1 is faster."""

    ratio: float
    verdict: Verdict


def compare(one: Summary, other: Summary) -> Comparison:
    """`one` against `other`. The same unless their ranges lie apart and the medians differ by more than NOISE."""
    ratio = one.median / other.median
    if not one.correct:
        return Comparison(ratio, "wrong")
    apart = one.high < other.low or one.low > other.high
    if not apart or abs(ratio - 1) <= NOISE:
        return Comparison(ratio, "same")
    return Comparison(ratio, "faster" if ratio < 1 else "slower")


def cases(summaries: Mapping[Key, Summary]) -> list[str]:
    """In the order they were measured."""
    return list(dict.fromkeys(case for case, _, _ in summaries))


def sizes(summaries: Mapping[Key, Summary], collective: str) -> list[int]:
    return sorted({size for _, name, size in summaries if name == collective})
