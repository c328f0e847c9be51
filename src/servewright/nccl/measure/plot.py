"""Time over message size, a line per environment. For the controller: it needs the package, and matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from servewright.report.plot import COLOURS, MARKERS, PlotError, figure, save

from .compare import Key, Summary, sizes
from .table import size


def draw(
    summaries: Mapping[Key, Summary],
    collective: str,
    cases: Sequence[str],
    target: Path,
    title: str,
    note: str = "",
) -> None:
    """Write an SVG or PNG, as the target's name says. The band around a line is from low to high of a Summary.

    Raises PlotError.
    """
    counts = sizes(summaries, collective)
    if not counts or not cases:
        raise PlotError(f"no times of {collective} to draw")
    drawn = figure(9, 5.6)
    axes, tickers = drawn.subplots(), import_module("matplotlib.ticker")
    for place, case in enumerate(cases):
        found = {count: summaries.get((case, collective, count)) for count in counts}
        points = [(count, summary) for count, summary in found.items() if summary]
        colour = COLOURS[place % len(COLOURS)]
        xs = [count for count, _ in points]
        axes.fill_between(xs, [s.low for _, s in points], [s.high for _, s in points], color=colour, alpha=0.15, lw=0)
        style = {"color": colour, "marker": MARKERS[place % len(MARKERS)], "markersize": 5, "linewidth": 1.6}
        axes.plot(xs, [s.median for _, s in points], label=case, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(counts)
    axes.xaxis.set_major_formatter(tickers.FuncFormatter(lambda value, _: size(int(value))))
    axes.xaxis.set_minor_formatter(tickers.NullFormatter())
    axes.yaxis.set_major_formatter(tickers.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(axis="x", labelrotation=45)
    axes.grid(True, which="major", alpha=0.4)
    axes.grid(True, which="minor", axis="y", alpha=0.15)
    axes.set_xlabel("message")
    axes.set_ylabel(f"microseconds per {collective}")
    axes.set_title(title, loc="left", fontsize=12)
    axes.legend(frameon=False)
    if note:
        drawn.supxlabel(note, fontsize=8, x=0.01, ha="left", color="#555555")
    save(drawn, target)
