"""The second table of the H200 page, and what the page says of the aims, follow from the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from servewright.nccl.measure import cases, choose, compare, record, table

MEASURED = Path(__file__).parents[3] / "docs" / "measured"
HERE = MEASURED / "2026-11-29-2x-h200" / "p2p-disabled"
PAGE = (MEASURED / "nccl-2x-h200.md").read_text(encoding="utf-8")
KIB, MIB = 1 << 10, 1 << 20
ALLOWED = 1.03


def _summaries(name: str) -> dict[compare.Key, compare.Summary]:
    return compare.summarise(record.read((HERE / f"{name}.json").read_text(encoding="utf-8")).timings)


def _ratio(found: dict[compare.Key, compare.Summary], one: str, other: str, size: int) -> float:
    return found[one, "all_reduce", size].median / found[other, "all_reduce", size].median


def _cell(text: str, place: int) -> str:
    """A cell of the table of aims: 2 is the first run, 3 the second."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {text}")]
    return line.split("|")[place]


def test_a_choice_from_sweep_and_finals_together_is_refused() -> None:
    """The second table was made so before times of different graphs were told apart."""
    sweep = _summaries("sweep")
    candidates = [cases.Setting.read(name) for name in compare.cases(sweep)]
    with pytest.raises(compare.MethodError, match=r"50 and 200 calls per graph"):
        choose.bands({**sweep, **_summaries("finals")}, "all_reduce", candidates)
    kept = (HERE / "tuned-2.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    assert "NOT FOR USE" in kept[0]
    verified = record.read((HERE / "verify-2.json").read_text(encoding="utf-8")).raw["cases"]
    rows = {case["files"][cases.TABLE].partition("\n")[2] for case in verified if case["name"] == "tuned"}
    assert rows == {"".join(kept[1:])}


def test_the_finals_are_those_of_the_sweep() -> None:
    sweep = {key: found for key, found in _summaries("sweep").items() if key[2] < MIB // 2}
    candidates = [cases.Setting.read(name) for name in compare.cases(sweep)]
    wanted = {str(setting) for setting in choose.finalists(sweep, "all_reduce", candidates)}
    assert set(compare.cases(_summaries("finals"))) == wanted


def test_times_of_the_two_verifications_do_not_compare() -> None:
    first, second = _summaries("verify"), _summaries("verify-2")
    for size in compare.sizes(second, "all_reduce"):
        ratio = second["nothing set", "all_reduce", size].median / first["nothing set", "all_reduce", size].median
        assert abs(ratio - 1) < 0.02 if size > 3 * MIB else ratio > 1.05


def test_what_the_page_says_of_the_six() -> None:
    for place, name in ((2, "verify"), (3, "verify-2")):
        found = _summaries(name)
        at_56_mib = _ratio(found, "pcie-ll-ring", "tuned", 56 * MIB)
        assert f"{at_56_mib:.2f} times" in _cell("at least 2.5 times faster", place)
        at_14_kib = _ratio(found, "pcie-ll-ring", "tuned", 14 * KIB)
        spread = found["tuned", "all_reduce", 14 * KIB].spread
        cell = _cell("at 14 KiB equal", place)
        assert f"take {100 * (at_14_kib - 1):.0f} % longer" in cell
        assert f"±{100 * spread:.0f} %" in cell


def test_what_the_page_says_of_the_best_single_environment() -> None:
    found = _summaries("verify-2")
    sizes = compare.sizes(found, "all_reduce")
    ratios = {size: _ratio(found, "tuned", "pcie-throughput", size) for size in sizes}
    slower = {size: ratio for size, ratio in ratios.items() if ratio > ALLOWED}
    cell = _cell("nowhere more than 3 % slower", 3)
    assert f"{len(sizes) - len(slower)} of {len(sizes)} sizes" in cell
    for size, ratio in slower.items():
        assert f"{100 * (ratio - 1):.0f} % at {table.size(size)}" in cell
    assert slower
    assert "not met" in cell


def test_what_the_page_says_of_the_finals() -> None:
    found = _summaries("finals")
    for size in compare.sizes(found, "all_reduce"):
        best = min(found[name, "all_reduce", size].median for name in compare.cases(found))
        name, most = ("Ring/LL/32", 1.04) if size < MIB // 4 else ("Ring/LL", 1.0)
        assert found[name, "all_reduce", size].median <= most * best
