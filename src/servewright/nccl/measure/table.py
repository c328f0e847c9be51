"""Measured times as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .compare import Key, Summary, cases, compare, sizes

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
            summary = summaries.get((name, collective, count))
            if summary is None or reference is None:
                cells.append("-")
                continue
            found = compare(summary, reference)
            mark = {"same": " =", "wrong": " WRONG"}.get(found.verdict, "")
            cells.append(f"{found.ratio:.2f}{mark}")
        rows.append(cells)
    return f"{collective}, time against {base} (below 1 is faster; = within the spread)\n{_columns(rows)}"


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
