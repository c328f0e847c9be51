from __future__ import annotations

import json
from typing import Any

import pytest

from servewright.nccl.measure import compare, record, table
from servewright.nccl.measure.record import Timing


def _timing(
    case: str, median: float, round_: int = 1, correct: bool = True, size: int = 14336, calls: int = 50
) -> Timing:
    return Timing(case, round_, "all_reduce", size, median, median * 0.98, median * 1.02, correct, calls)


def _summaries(**times: tuple[float, ...]) -> dict[compare.Key, compare.Summary]:
    return compare.summarise(
        _timing(case, median, number) for case, row in times.items() for number, median in enumerate(row, 1)
    )


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ((10.0, 11.0, 10.5), (20.0, 21.0, 20.5), "faster"),
        ((20.0, 21.0, 20.5), (10.0, 11.0, 10.5), "slower"),
        # 5 % apart, but starts of the same setting differ by as much.
        ((10.0, 11.0, 10.5), (10.6, 11.6, 11.0), "same"),
        # Apart, but too little to speak of.
        ((10.00, 10.01, 10.02), (10.05, 10.06, 10.07), "same"),
    ],
)
def test_a_difference_counts_when_it_is_larger_than_the_spread(
    one: tuple[float, ...], other: tuple[float, ...], verdict: str
) -> None:
    summaries = _summaries(one=one, other=other)
    first, second = summaries["one", "all_reduce", 14336], summaries["other", "all_reduce", 14336]
    assert compare.compare(first, second).verdict == verdict


def test_a_single_round_is_judged_by_its_repeats() -> None:
    summaries = _summaries(one=(10.0,), other=(10.3,))
    first, second = summaries["one", "all_reduce", 14336], summaries["other", "all_reduce", 14336]
    assert compare.compare(first, second).verdict == "same"


def test_wrong_data_is_never_fast() -> None:
    summaries = compare.summarise([_timing("fast", 1.0, correct=False), _timing("right", 10.0)])
    fast, right = summaries["fast", "all_reduce", 14336], summaries["right", "all_reduce", 14336]
    assert compare.compare(fast, right).verdict == "wrong"
    assert "WRONG" in table.times(summaries, "all_reduce")


def test_the_median_of_rounds_counts_not_the_luckiest() -> None:
    summary = _summaries(one=(10.0, 30.0, 12.0))["one", "all_reduce", 14336]
    assert (summary.median, summary.low, summary.high, summary.rounds) == (12.0, 10.0, 30.0, 3)


def test_a_disturbed_start_does_not_hide_a_difference() -> None:
    disturbed = Timing("one", 3, "all_reduce", 14336, 10.1, 9.9, 40.0, True, 50)
    calm = [_timing("one", 10.0, 1), _timing("one", 10.2, 2), disturbed, _timing("other", 20.0)]
    summaries = compare.summarise(calm)
    first, second = summaries["one", "all_reduce", 14336], summaries["other", "all_reduce", 14336]
    assert compare.compare(first, second).verdict == "faster"


def test_tables_name_sizes_as_people_do() -> None:
    summaries = compare.summarise([_timing("a", 12.34), _timing("b", 6609.4), _timing("a", 2100.0, size=58720256)])
    lines = table.times(summaries, "all_reduce").splitlines()
    assert lines[1].split() == ["size", "a", "b"]
    assert lines[2].split() == ["14", "KiB", "12.3", "±2%", "6609", "±2%"]
    assert lines[3].split() == ["56", "MiB", "2100", "±2%", "-"]
    against = table.against(summaries, "all_reduce", "a").splitlines()
    assert against[2].split()[-1] == "535.61"


RESULT: dict[str, Any] = {
    "schema": record.SCHEMA,
    "complete": True,
    "rehearsal": True,
    "diagnoses": [],
    "cases": [
        {
            "name": "a",
            "round": 1,
            "diagnosis": {"name": "hang", "detail": "d", "to_do": "t", "stops": True},
            "results": [],
        }
    ],
}


def test_a_rehearsal_says_so_in_its_heading() -> None:
    assert "REHEARSAL" in record.read(json.dumps(RESULT)).heading()


def test_a_failed_case_keeps_its_diagnosis() -> None:
    (found,) = record.read(json.dumps(RESULT)).diagnoses
    assert (found.name, found.case) == ("hang", "a")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({**RESULT, "schema": "servewright.nccl.probe/99"}),
        json.dumps({**RESULT, "cases": [{}]}),
    ],
)
def test_a_text_that_is_no_result(text: str) -> None:
    with pytest.raises(record.RecordError):
        record.read(text)


def test_times_of_graphs_of_different_length_are_refused() -> None:
    with pytest.raises(compare.MethodError, match="one at 14336 bytes was measured with 50 and 200 calls per graph"):
        compare.summarise([_timing("one", 20.0), _timing("one", 28.0, 2, calls=200)])
    with pytest.raises(compare.MethodError, match="50 and 200"):
        compare.paired([_timing("one", 20.0), _timing("two", 28.0, calls=200)], "one", "two", "all_reduce", 14336)


def test_what_a_start_does_to_all_its_cases_is_taken_out() -> None:
    """Starts differ by up to 30 %, cases by 2 %: raw they are the same, levelled they are told apart."""
    starts = {1: 1.0, 2: 1.3, 3: 0.9, 4: 1.1}
    timings = [_timing("slow", 10.2 * by, number) for number, by in starts.items()]
    timings += [_timing("fast", 10.0 * by, number) for number, by in starts.items()]
    # Measured in the good starts alone, it only looks the fastest.
    timings += [_timing("lucky", 10.4 * starts[number], number) for number in (3, 1)]
    level = compare.summarise(compare.levelled(timings))
    found = {case: level[case, "all_reduce", 14336] for case in ("slow", "fast", "lucky")}
    assert found["slow"].median / found["fast"].median == pytest.approx(1.02)
    assert found["lucky"].median / found["fast"].median == pytest.approx(1.04)
    raw = compare.summarise(timings)
    assert raw["lucky", "all_reduce", 14336].median < raw["fast", "all_reduce", 14336].median


def test_levelling_leaves_alone_what_has_nothing_in_common() -> None:
    timings = [_timing("one", 10.0, 1), _timing("two", 12.0, 2)]
    assert compare.levelled(timings) == timings


def test_pairs_of_one_round_hide_no_drift_and_no_disturbed_round() -> None:
    timings = []
    for number in range(1, 31):
        drift = 1 + number / 30
        disturbed = 5 if number == 7 else 1
        timings += [_timing("one", 10.0 * drift * disturbed, number), _timing("two", 10.1 * drift, number)]
    found = compare.paired(timings, "one", "two", "all_reduce", 14336)
    assert found is not None
    assert (found.ratio, found.rounds) == (pytest.approx(10 / 10.1), 30)
    assert (found.low, found.high) == (pytest.approx(10 / 10.1), pytest.approx(10 / 10.1))
    assert compare.paired(timings, "one", "three", "all_reduce", 14336) is None


@pytest.mark.parametrize(("rounds", "low", "high"), [(5, 1, 5), (6, 1, 6), (10, 2, 9), (20, 6, 15), (30, 10, 21)])
def test_the_interval_of_a_median_is_that_of_the_order_statistics(rounds: int, low: int, high: int) -> None:
    timings = [_timing("one", float(number), number) for number in range(1, rounds + 1)]
    timings += [_timing("two", 1.0, number) for number in range(1, rounds + 1)]
    found = compare.paired(timings, "one", "two", "all_reduce", 14336)
    assert found is not None
    assert (found.low, found.high) == (low, high)
