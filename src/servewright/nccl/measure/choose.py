"""The best setting per message size as a tuner table, or the best single environment where there is no plugin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .cases import COLLECTIVE, ENDLESS, Setting, row
from .compare import Key, Summary, same_method
from .sizes import Message, Phase

TOLERANCE = 0.01
"""A band may be wider at the price of this part of time at a size."""


class NothingToChooseError(ValueError):
    """No candidate was measured, right, at every size."""


SHORTLIST = 0.05
"""Starts of one and the same setting differ by about this part at small sizes."""


def finalists(summaries: Mapping[Key, Summary], candidates: Sequence[Setting]) -> dict[int, list[Setting]]:
    """For each size the settings that further rounds may show to be the best there.

    The best of many noisy times is partly luck, so the winner of a single sweep does worse when it is measured
    again. Measure these again, and choose from those times alone.
    Raises NothingToChooseError, MethodError.
    """
    usable, best = _usable(summaries, candidates)
    return {
        size: [setting for setting, found in usable.items() if found[size] <= best[size] * (1 + SHORTLIST)]
        for size in best
    }


@dataclass(frozen=True)
class Band:
    """From low to high bytes, both included."""

    low: int
    high: int
    setting: Setting


def bands(
    summaries: Mapping[Key, Summary],
    candidates: Iterable[Setting],
    tolerance: float = TOLERANCE,
    *,
    partial: bool = False,
) -> list[Band]:
    """The fewest bands in which no measured size is slower than its best by more than `tolerance`.

    Between two measured sizes of different bands the border is their geometric mean; the first band starts at 0 and
    the last has no end. Settings with wrong results at any size are out altogether. So are those that lack a size,
    unless partial: then each setting was measured only where it may be the best.
    Raises NothingToChooseError, MethodError.
    """
    usable, best = _usable(summaries, candidates, partial)
    sizes = sorted(best)
    found_bands: list[tuple[list[int], Setting]] = []
    at = 0
    while at < len(sizes):
        # Greedy is enough: the longest stretch from the left leaves the least to the rest.
        reach = {setting: _stretch(sizes[at:], found, best, tolerance) for setting, found in usable.items()}
        chosen = max(reach, key=reach.__getitem__)
        end = at + reach[chosen][0]
        found_bands.append((sizes[at:end], chosen))
        at = end
    return [
        Band(
            0 if place == 0 else _border(found_bands[place - 1][0][-1], members[0]) + 1,
            ENDLESS if place == len(found_bands) - 1 else _border(members[-1], found_bands[place + 1][0][0]),
            setting,
        )
        for place, (members, setting) in enumerate(found_bands)
    ]


def _usable(
    summaries: Mapping[Key, Summary],
    candidates: Iterable[Setting],
    partial: bool = False,
) -> tuple[dict[Setting, dict[int, float]], dict[int, float]]:
    """Microseconds by size of every setting that was right at all sizes, and the least of them by size."""
    times: dict[Setting, dict[int, float]] = {}
    calls: dict[int, set[int]] = {}
    wrong: set[Setting] = set()
    for setting in candidates:
        for (case, name, size), summary in summaries.items():
            if name == COLLECTIVE and case == str(setting):
                times.setdefault(setting, {})[size] = summary.median
                calls.setdefault(size, set()).add(summary.calls)
                if not summary.correct:
                    wrong.add(setting)
    for size, counts in calls.items():
        same_method(counts, f"{COLLECTIVE} of {size} bytes")
    sizes = sorted(calls)
    usable = {
        setting: found
        for setting, found in times.items()
        if setting not in wrong and (partial or len(found) == len(sizes))
    }
    if not usable or not all(any(size in found for found in usable.values()) for size in sizes):
        raise NothingToChooseError(f"{COLLECTIVE}: no setting was measured, with right results, at every size")
    best = {size: min(found[size] for found in usable.values() if size in found) for size in sizes}
    return usable, best


def _stretch(
    sizes: Sequence[int], times: Mapping[int, float], best: Mapping[int, float], tolerance: float
) -> tuple[int, float]:
    """How many sizes in a row the setting is good enough at; then, as a tie-break, how good."""
    slowdown: list[float] = []
    for size in sizes:
        if times.get(size, math.inf) > best[size] * (1 + tolerance):
            break
        slowdown.append(times[size] / best[size])
    return len(slowdown), -sum(slowdown) / len(slowdown) if slowdown else -math.inf


def _border(smaller: int, larger: int) -> int:
    return math.isqrt(smaller * larger)


def table(chosen: Sequence[Band], ranks: int, remark: str = "") -> str:
    """The file for NCCL_TUNER_CONFIG_FILE."""
    head = [f"# {line}" for line in remark.splitlines()]
    head.append("# collective,min bytes,max bytes,algorithm,protocol,channels,nodes,ranks")
    rows = [row(band.low, band.high, band.setting, ranks) for band in chosen]
    return "\n".join([*head, *rows]) + "\n"


@dataclass(frozen=True)
class Score:
    """How much slower than the best at each size, over all sizes, by weight: 1 is the best everywhere."""

    case: str
    slowdown: float
    decode: float
    prefill: float


def single(
    summaries: Mapping[Key, Summary],
    messages: Sequence[Message],
    weights: Mapping[Phase, float],
) -> list[Score]:
    """Every environment that was right at every size, best first.

    weights: how much decode and prefill count; each phase's sizes share its weight. The mean is geometric, so that
    twice as slow at one size and twice as fast at another cancel out whatever their times are.
    Raises ValueError for weights that are negative or all zero, NothingToChooseError.
    """
    if any(weight < 0 for weight in weights.values()) or not sum(weights.values()):
        raise ValueError("the weights of decode and prefill must be 0 or more, and not both 0")
    wanted = {message.bytes for message in messages}
    by_case: dict[str, dict[int, Summary]] = {}
    for (case, name, size), summary in summaries.items():
        if name == COLLECTIVE and size in wanted:
            by_case.setdefault(case, {})[size] = summary
    for size in wanted:
        if counts := {found[size].calls for found in by_case.values() if size in found}:
            same_method(counts, f"{COLLECTIVE} of {size} bytes")
    usable = {
        case: found
        for case, found in by_case.items()
        if len(found) == len(wanted) and all(summary.correct for summary in found.values())
    }
    if not usable:
        raise NothingToChooseError(f"{COLLECTIVE}: no environment was measured, with right results, at every size")
    best = {size: min(found[size].median for found in usable.values()) for size in wanted}
    scores: list[Score] = []
    for case, found in usable.items():
        means: dict[Phase, float] = {"decode": 0.0, "prefill": 0.0}
        for phase in means:
            logs = [math.log(found[m.bytes].median / best[m.bytes]) for m in messages if m.phase == phase]
            means[phase] = sum(logs) / len(logs) if logs else 0.0
        total = sum(weights.values())
        mean = sum(weight * means[phase] for phase, weight in weights.items()) / total
        scores.append(Score(case, math.exp(mean), math.exp(means["decode"]), math.exp(means["prefill"])))
    return sorted(scores, key=lambda score: (score.slowdown, score.case))
