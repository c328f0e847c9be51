"""Times of several rounds put together, and two of them compared with their spread in mind."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from .record import Timing

NOISE = 0.01
"""Differences below this part are never called a difference."""

Key = tuple[str, str, int]
"""Case, collective, bytes."""


@dataclass(frozen=True)
class Summary:
    """Microseconds: the median over rounds of each round's median, and how far from it times lie.

    low and high are the range over rounds or a typical round's 10th and 90th percentile, whichever is wider: two or
    three starts show too little of how starts differ, and one disturbed start must not hide a difference.
    """

    median: float
    low: float
    high: float
    rounds: int
    correct: bool

    @property
    def spread(self) -> float:
        """Half of low to high as a part of the median."""
        return (self.high - self.low) / 2 / self.median


def summarise(timings: Iterable[Timing]) -> dict[Key, Summary]:
    grouped: dict[Key, list[Timing]] = {}
    for timing in timings:
        grouped.setdefault((timing.case, timing.collective, timing.bytes), []).append(timing)
    return {key: _summary(rows) for key, rows in grouped.items()}


def _summary(rows: list[Timing]) -> Summary:
    medians = [row.median for row in rows]
    return Summary(
        median=statistics.median(medians),
        low=min(*medians, statistics.median(row.p10 for row in rows)),
        high=max(*medians, statistics.median(row.p90 for row in rows)),
        rounds=len(rows),
        correct=all(row.correct for row in rows),
    )


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
