from __future__ import annotations

from pathlib import Path

import matplotlib
import pytest

from servewright.performance.plot import draw
from servewright.report.plot import PlotError
from tests.unit.performance.samples import bench


def test_a_plot_names_both_records_and_the_numbers_of_streams(tmp_path: Path) -> None:
    target = tmp_path / "plot.svg"
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        draw([{**bench(2), "host": "gpu1"}, {**bench(3, 60), "host": "gpu1"}], target)
    text = target.read_text()
    for words in ("release 2", "release 3", "one stream", ">A<", ">B<", "streams at once", "all streams", ">8<"):
        assert words in text


@pytest.mark.parametrize(
    ("name", "curve", "message"),
    [("plot.txt", bench()["curve"], "ends with .svg, .png or .pdf"), ("plot.svg", [], "only `servewright bench`")],
)
def test_a_plot_that_cannot_be_drawn(tmp_path: Path, name: str, curve: list[object], message: str) -> None:
    with pytest.raises(PlotError, match=message):
        draw([bench(curve=curve)] * 2, tmp_path / name)
