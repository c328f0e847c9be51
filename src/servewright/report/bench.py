"""What benches measured, for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from servewright.driver.results import RunResult
from servewright.performance import compare
from servewright.performance.records import Record, name
from servewright.report.layout import Line, Part, labelled, table
from servewright.report.service import word


def value(number: float, unit: str) -> str:
    """A figure with its unit, to what can be read of it."""
    return f"{number:.1f} tok/s" if unit == "tok/s" else f"{number * 1000:.1f} ms"


def bench(result: RunResult, width: int | None) -> list[Line]:
    """The record of each service."""
    lines: list[Line] = []
    for host, found in result.hosts.items():
        for service in found.services:
            lines += [[]] if lines else []
            lines += _record({**service["record"], "host": host}, width) if "record" in service else []
            if "record" not in service:
                verdict, style = word(service)
                lines.append([(f"{host}  {service.get('service')}  ", "strong"), (verdict, style)])
                lines += labelled("reason", service.get("message", ""), width)
    return lines


def _record(record: Record, width: int | None) -> list[Line]:
    lines: list[Line] = [[(name(record), "strong"), (f"  {record['seconds']:.0f} s", "faint")]]
    for figure, (what, more) in compare.FIGURES.items():
        found = record["figures"].get(figure)
        if found:
            unit = "tok/s" if more else "s"
            repeats = f"({value(found['low'], unit)} to {value(found['high'], unit)}, {len(found['repeats'])} repeats)"
            lines += labelled("", f"{what:<36}{value(found['median'], unit)}  {repeats}", width)
    head = ("STREAMS", "ALL STREAMS", "A STREAM", "FIRST TOKEN", "99TH", "BETWEEN PIECES", "99TH")
    rows = [[(cell, "") for cell in _level(level)] for level in record["curve"]]
    lines += table(head, rows) if rows else []
    if record.get("others"):
        lines += labelled("note", "others used the server meanwhile: this is not its whole speed", width, "change")
    if record.get("left_out"):
        left = ", ".join(map(str, record["left_out"]))
        lines += labelled("note", f"not measured for want of time (--seconds): {left} streams", width, "change")
    return lines


def _level(level: dict[str, Any]) -> list[str]:
    return [
        str(level["concurrency"]),
        value(level["throughput"], "tok/s"),
        value(level["decode"], "tok/s"),
        *(value(level[kind][point], "s") for kind in ("ttft", "itl") for point in ("median", "p99")),
    ]


def comparison(first: Record, second: Record, width: int | None) -> list[Line]:
    """Two records side by side."""
    lines: list[Line] = [
        [("A  ", "strong"), (f"{name(first)}  {first['time'][:19]}", "")],
        [("B  ", "strong"), (f"{name(second)}  {second['time'][:19]}", "")],
        [],
    ]
    rows = [_row("1", row) for row in compare.single(first, second)]
    rows += [_row(str(level), row) for level, found in compare.curve(first, second) for row in found]
    lines += table(("STREAMS", "FIGURE", "A", "B", "B AGAINST A", ""), rows)
    for note in compare.notes(first, second):
        lines += labelled("note", note, width, "change")
    return lines


def _row(streams: str, row: compare.Row) -> list[Part]:
    style = {"same": "faint", "better": "good", "worse": "bad", "": ""}[row.verdict]
    cells: Iterable[str] = (streams, row.what, value(row.first, row.unit), value(row.second, row.unit))
    return [*((cell, "") for cell in cells), (f"{row.change:+.1%}", ""), (row.verdict, style)]
