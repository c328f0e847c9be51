"""What plots have in common. They need matplotlib: `pip install servewright[plot]`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

# Told apart also without colour (Okabe and Ito's palette, and a marker each).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = "os^Dv<>P"


class PlotError(ValueError):
    """matplotlib is not installed, or there is nothing to draw."""


def figure(width: float, height: float) -> Any:
    """An empty figure of that size in inches. Raises PlotError."""
    try:
        return import_module("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    except ImportError:
        raise PlotError("a plot needs matplotlib: pip install 'servewright[plot]'") from None


def save(drawn: Any, target: Path) -> None:
    """Write it as the name of the target says: .svg, .png or .pdf. The same figure gives the same bytes."""
    metadata = {"Date": None} if target.suffix == ".svg" else None
    with import_module("matplotlib").rc_context({"svg.hashsalt": "servewright"}):
        drawn.savefig(target, dpi=150, metadata=metadata)
