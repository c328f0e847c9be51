from __future__ import annotations

import pytest

from servewright.nccl.measure import cases, choose, compare, profile
from servewright.nccl.measure.cases import Setting
from servewright.nccl.measure.compare import Summary
from servewright.nccl.measure.sizes import Message
from servewright.nccl.profiles import Profile

KIB, MIB = 1 << 10, 1 << 20
LL, SIMPLE, TREE = Setting("Ring", "LL"), Setting("Ring", "Simple", 16), Setting("Tree", "LL")
SIZES = (16 * KIB, 64 * KIB, MIB, 64 * MIB)


def _summaries(times: dict[str, tuple[float, ...]], wrong: tuple[str, ...] = ()) -> dict[compare.Key, Summary]:
    return {
        (case, "all_reduce", size): Summary(time, time, time, 1, case not in wrong)
        for case, row in times.items()
        for size, time in zip(SIZES, row, strict=False)
    }


TIMES = {
    "Ring/LL": (10.0, 12.0, 80.0, 6000.0),
    "Ring/Simple/16": (20.0, 21.0, 60.0, 2000.0),
    "Tree/LL": (11.0, 14.0, 90.0, 7000.0),
}


def test_small_messages_and_large_ones_get_what_suits_each() -> None:
    small, large = choose.bands(_summaries(TIMES), [LL, SIMPLE, TREE])
    assert (small.low, small.setting, large.setting, large.high) == (0, LL, SIMPLE, cases.ENDLESS)
    assert small.high + 1 == large.low
    assert 64 * KIB < small.high < MIB


def test_no_measured_size_is_slower_than_its_best_by_more_than_the_tolerance() -> None:
    summaries = _summaries(TIMES)
    for tolerance in (0.0, 0.05, 0.2, 1.0):
        for band in choose.bands(summaries, [LL, SIMPLE, TREE], tolerance):
            for place, size in enumerate(SIZES):
                if band.low <= size <= band.high:
                    chosen = TIMES[str(band.setting)][place]
                    assert chosen <= min(row[place] for row in TIMES.values()) * (1 + tolerance)


def test_a_tolerance_joins_bands() -> None:
    times = {"Ring/LL": (10.0, 10.0, 10.1, 10.0), "Tree/LL": (10.1, 10.1, 10.0, 10.1)}
    assert len(choose.bands(_summaries(times), [LL, TREE], 0.0)) == 3
    (band,) = choose.bands(_summaries(times), [LL, TREE], 0.02)
    assert (band.low, band.high, band.setting) == (0, cases.ENDLESS, LL)


def test_wrong_results_are_never_chosen_however_fast() -> None:
    summaries = _summaries({**TIMES, "Tree/LL": (1.0, 1.0, 1.0, 1.0)}, wrong=("Tree/LL",))
    chosen = {band.setting for band in choose.bands(summaries, [LL, SIMPLE, TREE])}
    assert chosen == {LL, SIMPLE}


def test_a_setting_that_failed_at_a_size_is_out() -> None:
    summaries = _summaries({**TIMES, "Tree/LL": (1.0, 1.0)})
    chosen = {band.setting for band in choose.bands(summaries, [LL, SIMPLE, TREE])}
    assert TREE not in chosen


def test_a_setting_measured_only_where_it_may_win_is_taken_there() -> None:
    times = {"Ring/LL": (10.0, 12.0), "Ring/Simple/16": (10.1, 13.0, 60.0, 2000.0)}
    small, large = choose.bands(_summaries(times), [LL, SIMPLE], 0.0, partial=True)
    assert (small.setting, large.setting) == (LL, SIMPLE)


def test_times_of_different_methods_are_not_chosen_from() -> None:
    found = _summaries(TIMES)
    found["Ring/LL", "all_reduce", MIB] = Summary(80.0, 80.0, 80.0, 1, True, calls=200)
    with pytest.raises(compare.MethodError, match=f"all_reduce of {MIB} bytes was measured with 1 and 200 calls"):
        choose.bands(found, [LL, SIMPLE])
    with pytest.raises(compare.MethodError):
        choose.finalists(found, [LL, SIMPLE])
    with pytest.raises(compare.MethodError):
        choose.single(found, MESSAGES, {"decode": 1, "prefill": 1})


def test_nothing_right_leaves_nothing_to_choose() -> None:
    with pytest.raises(choose.NothingToChooseError, match="all_reduce"):
        choose.bands(_summaries(TIMES, wrong=tuple(TIMES)), [LL, SIMPLE, TREE])


def test_finalists_are_those_that_may_yet_win_somewhere() -> None:
    times = {**TIMES, "Tree/LL": (10.4, 30.0, 900.0, 9000.0), "Tree/Simple": (40.0, 40.0, 70.0, 2300.0)}
    candidates = [LL, SIMPLE, TREE, Setting("Tree", "Simple")]
    found = choose.finalists(_summaries(times), candidates)
    assert found == {SIZES[0]: [LL, TREE], SIZES[1]: [LL], SIZES[2]: [SIMPLE], SIZES[3]: [SIMPLE]}


def test_the_table_is_what_the_plugin_reads() -> None:
    chosen = choose.bands(_summaries(TIMES), [LL, SIMPLE])
    border = chosen[0].high
    assert choose.table(chosen, ranks=8, remark="on a host").splitlines() == [
        "# on a host",
        "# collective,min bytes,max bytes,algorithm,protocol,channels,nodes,ranks",
        f"allreduce,0,{border},ring,ll,-1,1,8",
        f"allreduce,{border + 1},9223372036854775807,ring,simple,16,1,8",
    ]


MESSAGES = tuple(Message(size, size // (16 * KIB), "decode" if size < MIB else "prefill") for size in SIZES)


@pytest.mark.parametrize(
    ("decode", "prefill", "best"),
    [(1, 0, "Ring/LL"), (0, 1, "Ring/Simple/16"), (1, 1, "Ring/LL"), (1, 2, "Ring/Simple/16")],
)
def test_one_environment_is_chosen_by_what_counts(decode: float, prefill: float, best: str) -> None:
    times = {"Ring/LL": (10.0, 10.0, 120.0, 3000.0), "Ring/Simple/16": (20.0, 20.0, 80.0, 2000.0)}
    scores = choose.single(_summaries(times), MESSAGES, {"decode": decode, "prefill": prefill})
    assert scores[0].case == best
    assert scores[0].slowdown <= scores[1].slowdown


def test_a_score_says_how_much_slower_than_the_best_everywhere() -> None:
    times = {"a": (10.0, 10.0, 100.0, 100.0), "b": (20.0, 20.0, 50.0, 50.0)}
    first, second = choose.single(_summaries(times), MESSAGES, {"decode": 1, "prefill": 1})
    assert sorted([first.decode, first.prefill]) == pytest.approx([1.0, 2.0])
    assert first.slowdown == second.slowdown == pytest.approx(2**0.5)


@pytest.mark.parametrize(("decode", "prefill"), [(0, 0), (-1, 2)])
def test_weights_that_weigh_nothing(decode: float, prefill: float) -> None:
    with pytest.raises(ValueError, match="weights"):
        choose.single(_summaries(TIMES), MESSAGES, {"decode": decode, "prefill": prefill})


def test_the_tuned_profile_can_be_declared() -> None:
    wide = cases.wide("pcie", 32)
    found = Profile.model_validate(profile.tuned("tuned-here", "pcie", wide, "measured", "/lib/t.so", "/etc/t.csv"))
    assert {variable: setting.value for variable, setting in found.settings.items()} == {
        "NCCL_MIN_CTAS": "32",
        "NCCL_TUNER_PLUGIN": "/lib/t.so",
        "NCCL_TUNER_CONFIG_FILE": "/etc/t.csv",
    }
    assert found.measured.status == "yes"
