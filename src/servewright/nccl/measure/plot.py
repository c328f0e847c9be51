"""Time over message size, a line per environment. Needs matplotlib: `pip install servewright[plot]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from .compare import Key, Summary, sizes
from .table import size


class PlotError(RuntimeError):
    """matplotlib is not installed, or there is nothing to draw."""


# Told apart also without colour (Okabe and Ito's palette, and a marker each).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
_MARKERS = "os^Dv<>P"


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
    try:
        figures, tickers = import_module("matplotlib.figure"), import_module("matplotlib.ticker")
    except ImportError:
        raise PlotError("a plot needs matplotlib: pip install 'servewright[plot]'") from None
    counts = sizes(summaries, collective)
    if not counts or not cases:
        raise PlotError(f"no times of {collective} to draw")
    figure = figures.Figure(figsize=(9, 5.6), layout="constrained")
    axes = figure.subplots()
    for place, case in enumerate(cases):
        found = {count: summaries.get((case, collective, count)) for count in counts}
        points = [(count, summary) for count, summary in found.items() if summary]
        colour = _COLOURS[place % len(_COLOURS)]
        xs = [count for count, _ in points]
        axes.fill_between(
            xs, [s.low for _, s in points], [s.high for _, s in points], color=colour, alpha=0.15, lw=0
        )
        axes.plot(
            xs,
            [s.median for _, s in points],
            label=case,
            color=colour,
            marker=_MARKERS[place % len(_MARKERS)],
            markersize=5,
            linewidth=1.6,
        )
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
        figure.supxlabel(note, fontsize=8, x=0.01, ha="left", color="#555555")
    # The same record gives the same bytes.
    metadata = {"Date": None} if target.suffix == ".svg" else None
    with import_module("matplotlib").rc_context({"svg.hashsalt": "servewright"}):
        figure.savefig(target, dpi=150, metadata=metadata)
