"""Throughput and time to the first token over the number of streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from servewright.performance.records import Record, name
from servewright.report.plot import COLOURS, MARKERS, PlotError, figure, save


def draw(records: Sequence[Record], target: Path) -> None:
    """Write an SVG, PNG or PDF, as the name of the target says. Raises PlotError."""
    if target.suffix not in (".svg", ".png", ".pdf"):
        raise PlotError(f"{target}: give a name that ends with .svg, .png or .pdf")
    if not any(record["curve"] for record in records):
        raise PlotError("there is no curve to draw: only `servewright bench` measures one")
    drawn = figure(10, 4.8)
    throughput, first = drawn.subplots(1, 2)
    for record, colour, marker in zip(records, COLOURS, MARKERS, strict=False):
        levels = [level["concurrency"] for level in record["curve"]]
        style = {"label": name(record), "color": colour, "marker": marker, "markersize": 5, "linewidth": 1.6}
        throughput.plot(levels, [level["throughput"] for level in record["curve"]], **style)
        first.plot(levels, [level["ttft"]["median"] * 1000 for level in record["curve"]], **style)
    ticks = sorted({level["concurrency"] for record in records for level in record["curve"]})
    for axes, title in ((throughput, "tokens per second, all streams"), (first, "milliseconds to the first token")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_ylim(bottom=0)
        axes.grid(True, alpha=0.4)
        axes.set_xlabel("streams at once")
        axes.set_title(title, loc="left", fontsize=11)
    drawn.legend(*throughput.get_legend_handles_labels(), loc="outside lower left", frameon=False, fontsize=9)
    save(drawn, target)
