from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import pytest

from servewright.nccl.measure import compare, plot
from servewright.nccl.measure.record import Timing
from servewright.report.plot import PlotError

SUMMARIES = compare.summarise(
    Timing(case, 1, "all_reduce", size, size / speed + 10, size / speed + 9, size / speed + 11, True, 50)
    for case, speed in (("nothing set", 100.0), ("the six", 30.0))
    for size in (14336, 917504, 58720256)
)


def test_a_plot_names_its_cases_sizes_and_what_was_measured(tmp_path: Path) -> None:
    target = tmp_path / "plot.svg"
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot.draw(SUMMARIES, "all_reduce", ["nothing set", "the six"], target, "A title", "2x GPU")
    text = target.read_text(encoding="utf-8")
    for words in ("nothing set", "the six", "14 KiB", "56 MiB", "A title", "2x GPU"):
        assert words in text


def test_without_matplotlib_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PlotError, match=r"servewright\[plot\]"):
        plot.draw(SUMMARIES, "all_reduce", ["nothing set"], tmp_path / "plot.svg", "A title")


def test_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(PlotError, match="all_gather"):
        plot.draw(SUMMARIES, "all_gather", ["nothing set"], tmp_path / "plot.svg", "A title")
