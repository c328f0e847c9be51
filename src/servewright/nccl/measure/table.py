"""Measured times as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .cases import COLLECTIVE, NOTHING, only, without
from .compare import Key, Summary, cases, compare, paired, sizes, summarise
from .record import Record, Timing

_UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"))


def size(count: int) -> str:
    """`14 KiB`; `1.75 MiB`."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} B"


def microseconds(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def times(summaries: Mapping[Key, Summary], collective: str) -> str:
    """Microseconds per call: a line per size, a column per case, with half the range in percent."""
    names = cases(summaries)
    rows = [["size", *names]]
    for count in sizes(summaries, collective):
        cells = [summaries.get((name, collective, count)) for name in names]
        rows.append([size(count), *(_cell(cell) for cell in cells)])
    return f"{collective}, microseconds per call\n{_columns(rows)}"


def against(summaries: Mapping[Key, Summary], collective: str, base: str) -> str:
    """Every case's time as a part of the base's: `=` where the difference is within the spread."""
    names = [name for name in cases(summaries) if name != base]
    rows = [["size", base, *names]]
    for count in sizes(summaries, collective):
        reference = summaries.get((base, collective, count))
        cells = [size(count), _cell(reference)]
        for name in names:
            cells.append(_ratio(summaries.get((name, collective, count)), reference))
        rows.append(cells)
    return f"{collective}, time against {base} (below 1 is faster; = within the spread)\n{_columns(rows)}"


def pairs(timings: Sequence[Timing], collective: str, one: str, others: Sequence[str] = ()) -> str:
    """`one` as a part of each other case in the same round: the median over rounds and its 95 % interval."""
    summaries = summarise(timings)
    names = [name for name in others or cases(summaries) if name != one]
    rows = [["size", "rounds", *names]]
    for count in sizes(summaries, collective):
        found = [paired(timings, one, name, collective, count) for name in names]
        shown = [f"{pair.ratio:.2f} ({pair.low:.2f}-{pair.high:.2f})" if pair else "-" for pair in found]
        rows.append([size(count), str(max((pair.rounds for pair in found if pair), default=0)), *shown])
    return f"{collective}, time of {one} against each other in the same round (95 % interval)\n{_columns(rows)}"


def effects(found: Record, profile: str, at: Sequence[int] = ()) -> str:
    """What the ablation of a profile says of each variable: it alone against nothing, and the rest against all.

    Above 1 under `alone` the variable slows; above 1 under `without` leaving it out slows, so it helps. At the sizes
    `at`, else at the smallest, the middle and the largest.
    """
    summaries = summarise(found.timings)
    measured = sizes(summaries, COLLECTIVE)
    at = at or sorted({measured[0], measured[len(measured) // 2], measured[-1]})
    environment = next(case["environment"] for case in found.raw["cases"] if case["name"] == profile)
    rows = [["variable", *(f"{word} {size(count)}" for word in ("alone", "without") for count in at)]]
    for variable in sorted(environment):
        cells = [variable]
        for case, base in ((only(variable), NOTHING), (without(profile, variable), profile)):
            for count in at:
                one = summaries.get((case, COLLECTIVE, count))
                cells.append(_ratio(one, summaries.get((base, COLLECTIVE, count))))
        rows.append(cells)
    return f"{COLLECTIVE}, time against nothing set, and against {profile}\n{_columns(rows)}"


def _ratio(one: Summary | None, base: Summary | None) -> str:
    if one is None or base is None:
        return "-"
    found = compare(one, base)
    return f"{found.ratio:.2f}" + {"same": " =", "wrong": " WRONG"}.get(found.verdict, "")


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return "-"
    if not summary.correct:
        return "WRONG"
    return f"{microseconds(summary.median)} ±{100 * summary.spread:.0f}%"


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )
