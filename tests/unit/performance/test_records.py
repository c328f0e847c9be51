"""Which record is meant, and what two of them say side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from servewright.driver.results import HostResult, RunResult
from servewright.performance import compare, records
from servewright.report.bench import comparison
from servewright.report.layout import as_text
from tests.unit.performance.samples import baseline, bench


def answer(**hosts: dict[str, Any]) -> RunResult:
    """Of a run that fetched what hosts know of the service `kimi`."""
    return RunResult(
        "compare",
        {host: HostResult([{"service": "kimi", "verdict": "ok", **known}]) for host, known in hosts.items()},
    )


KNOWN = {"benches": [bench(2, 90), bench(3, 100), bench(3, 101)], "baselines": [baseline(1, 80, 82), baseline(3, 99)]}


@pytest.mark.parametrize(
    ("text", "release", "decode"),
    [
        ("kimi", 3, 101),  # the latest
        ("kimi@2", 2, 90),
        ("gpu1:kimi@3", 3, 101),
        ("kimi@1", 1, 81),  # never benched: the median of its starts
    ],
)
def test_a_record_is_named_by_service_release_and_host(text: str, release: int, decode: float) -> None:
    found = records.chosen(text, answer(gpu1=KNOWN))
    assert (found["host"], found["release"], found["figures"]["decode"]["median"]) == ("gpu1", release, decode)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kimi", "measured on gpu1, gpu2: say which, as in gpu1:kimi"),
        ("other", "run `servewright bench other` first"),
        ("kimi@7", "nothing was measured"),
        ("gpu3:kimi", "nothing was measured"),
        ("a b", r"neither a file nor \[HOST:\]SERVICE\[@RELEASE\]"),
    ],
)
def test_a_name_that_is_none_or_several_is_refused(text: str, message: str) -> None:
    with pytest.raises(records.RecordError, match=message):
        records.chosen(text, answer(gpu1=KNOWN, gpu2=KNOWN))


def test_an_exported_record_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    records.export([{**bench(), "host": "gpu1"}], path)
    assert records.read(path) == {**bench(), "host": "gpu1"}
    records.export([{**bench(), "host": "gpu1"}, {**bench(), "host": "gpu2"}], path)
    with pytest.raises(records.RecordError, match="holds 2 records"):
        records.read(path)


def test_a_baseline_is_exported_by_what_compare_prints(tmp_path: Path) -> None:
    """As docs/performance.md says: no bench has to be run for it."""
    found = records.chosen("kimi@1", answer(gpu1=KNOWN))
    printed = {"command": "compare", "exit_code": 0, "first": found, "second": found}
    path = tmp_path / "before.json"
    path.write_text(json.dumps({"records": [printed["first"]]}))
    assert records.read(path) == found
    assert "single stream" in as_text(comparison(records.read(path), {**bench(3), "host": "gpu1"}, None), False)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"records": [1]}', '{"hosts": {"a": {}}}', "x"])
def test_a_file_that_is_no_record_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(records.RecordError, match=r"a\.json"):
        records.read(path)


def test_side_by_side_a_difference_within_the_repeats_is_none() -> None:
    rows = {row.what: row for row in compare.single(bench(2, 100), bench(3, 60))}
    assert (rows["single stream"].verdict, rows["first token"].verdict) == ("worse", "same")
    rows = {row.what: row for row in compare.single(bench(2, 100), bench(3, 101))}
    assert rows["single stream"].verdict == "same"
    levels = dict(compare.curve(bench(2, 100), bench(3, 120, curve=bench(3, 120)["curve"][:2])))
    assert list(levels) == [1, 2]
    assert (levels[2][0].change, levels[2][0].verdict) == (pytest.approx(0.2), "")  # measured once: nothing is claimed


def test_what_makes_two_records_incomparable_is_said() -> None:
    other = bench(3, model="/models/other", gpus=[0], workload={"tokens": 8}, others=2)
    text = " ".join(compare.notes(bench(2), other))
    for words in ("model differ", "gpus differ", "64 and 8 tokens", "release 3: others used the server"):
        assert words in text
    assert compare.notes(bench(3), bench(3)) == []


def test_how_many_starts_stand_behind_a_comparison_is_said() -> None:
    assert compare.notes(bench(2), bench(3)) == [compare.FEW_STARTS]
    assert compare.notes({**bench(2), "starts": 5}, {**bench(3), "starts": 3}) == ["medians of 5 and 3 starts"]


def test_the_table_names_both_and_gives_the_change() -> None:
    first, second = ({**record, "host": "gpu1"} for record in (bench(2, 100), bench(3, 60)))
    text = as_text(comparison(first, second, None), False)
    assert "A  gpu1: kimi, release 2 (sglang 0.5.23)" in text
    line = next(line for line in text.splitlines() if "single stream" in line)
    assert line.split() == ["1", "single", "stream", "100.0", "tok/s", "60.0", "tok/s", "-40.0%", "worse"]
    assert json.dumps(first)  # plain data
