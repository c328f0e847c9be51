"""What the H200 page says of the aims follows from the verification."""

from __future__ import annotations

from pathlib import Path

from servewright.nccl.measure import cases, compare, record, table, tune

MEASURED = Path(__file__).parents[3] / "docs" / "measured"
HERE = MEASURED / "2026-11-30-2x-h200" / "p2p-disabled"
PAGE = (MEASURED / "nccl-2x-h200.md").read_text(encoding="utf-8")
KIB, MIB = 1 << 10, 1 << 20
VERIFIED = record.read((HERE / "verify.json").read_text(encoding="utf-8"))


def _pair(other: str, size: int) -> compare.Paired:
    found = compare.paired(VERIFIED.timings, tune.TUNED, other, "all_reduce", size)
    assert found
    return found


def _cell(text: str) -> str:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {text}")]
    return line.split("|")[2]


def test_the_verified_table_is_the_one_beside_it() -> None:
    kept = (HERE / "tuned.csv").read_text(encoding="utf-8").partition("\n")[2]
    used = {case["files"][cases.TABLE].partition("\n")[2] for case in VERIFIED.raw["cases"] if case["files"]}
    assert used == {kept}


def test_no_single_environment_is_better_anywhere_by_more_than_allowed() -> None:
    summaries = compare.summarise(VERIFIED.timings)
    others = [name for name in compare.cases(summaries) if name != tune.TUNED]
    assert {"nothing set", "pcie-ll-ring", "pcie-throughput"} < set(others)
    sizes = compare.sizes(summaries, "all_reduce")
    ratios = {(name, size): _pair(name, size).ratio for name in others for size in sizes}
    worst = max(ratios.values())
    assert worst <= tune.ALLOWED
    name, size = max(ratios, key=ratios.__getitem__)
    cell = _cell("nowhere more than 3 % slower")
    assert f"worst is {worst:.3f}, at {table.size(size)} against `{name}`" in cell
    profiles = {key: _pair(*key).high for key in ratios if not key[0].endswith("everywhere")}
    assert max(profiles.values()) <= tune.ALLOWED
    assert f"at most {max(profiles.values()):.2f} against the three profiles" in cell
    unsure = sum(_pair(*key).high > tune.ALLOWED for key in ratios if key not in profiles)
    assert f"{unsure} of {len(ratios) - len(profiles)} intervals" in cell


def test_what_the_page_says_of_the_six() -> None:
    large, small = _pair("pcie-ll-ring", 56 * MIB), _pair("pcie-ll-ring", 14 * KIB)
    assert f"{1 / large.ratio:.2f} times" in _cell("at least 2.5 times faster")
    cell = _cell("at 14 KiB equal")
    assert f"{small.ratio:.2f} of their time ({small.low:.2f}-{small.high:.2f})" in cell
    assert small.high < 0.97
