"""Decode of a single stream; throughput and time to the first token over the number of streams."""

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
    drawn = figure(12, 4.8)
    decode, throughput, first = drawn.subplots(1, 3, width_ratios=(1, 2, 2))
    for place, (record, colour, marker) in enumerate(zip(records, COLOURS, MARKERS, strict=False)):
        levels = [level["concurrency"] for level in record["curve"]]
        style = {"label": name(record), "color": colour, "marker": marker, "markersize": 5, "linewidth": 1.6}
        alone = record["figures"]["decode"]
        ends = [[alone["median"] - alone["low"]], [alone["high"] - alone["median"]]]
        decode.errorbar([place], [alone["median"]], ends, fmt=marker, color=colour, markersize=7, capsize=6)
        throughput.plot(levels, [level["throughput"] for level in record["curve"]], **style)
        first.plot(levels, [level["ttft"]["median"] * 1000 for level in record["curve"]], **style)
    ticks = sorted({level["concurrency"] for record in records for level in record["curve"]})
    decode.set_xticks(range(len(records)), list("ABCDEFGH"[: len(records)]))  # as the table calls them
    decode.set_xlim(-0.7, len(records) - 0.3)
    decode.set_xlabel("median, lowest and highest")
    for axes in (throughput, first):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xlabel("streams at once")
    titles = (
        (decode, "tokens/s, one stream"),
        (throughput, "tokens/s, all streams"),
        (first, "milliseconds to the first token"),
    )
    for axes, title in titles:
        axes.set_ylim(bottom=0)
        axes.grid(True, alpha=0.4)
        axes.set_title(title, loc="left", fontsize=11)
    drawn.legend(*throughput.get_legend_handles_labels(), loc="outside lower left", frameon=False, fontsize=9)
    save(drawn, target)
