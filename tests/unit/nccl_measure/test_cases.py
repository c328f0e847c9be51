from __future__ import annotations

from servewright.nccl.measure import cases
from servewright.nccl.measure.cases import Case, Setting

SIX = {
    "NCCL_PROTO": "LL",
    "NCCL_ALGO": "Ring",
    "NCCL_P2P_LEVEL": "SYS",
    "NCCL_MAX_NCHANNELS": "16",
    "NCCL_BUFFSIZE": "16777216",
    "NCCL_NTHREADS": "512",
}


def test_rounds_spread_drift_over_all_cases() -> None:
    names = [str(number) for number in range(20)]
    ordered = cases.rounds([Case(name) for name in names], 4)
    by_round = [[case.name for case in ordered if case.round == number] for number in range(1, 5)]
    assert all(sorted(found) == sorted(names) for found in by_round)
    first, second, third, fourth = by_round
    assert (first, second, fourth) == (names, names[::-1], third[::-1])
    assert third not in (first, second)
    assert ordered == cases.rounds([Case(name) for name in names], 4), "a run can be repeated as it was"


def test_ablation_leaves_out_each_variable_and_tries_each_alone() -> None:
    found = {case.name: case.environment for case in cases.ablation("six", SIX)}
    assert found.pop("six") == SIX
    assert found.pop("nothing set") == {}
    for variable, value in SIX.items():
        assert found.pop(cases.only(variable)) == {variable: value}
        left = found.pop(cases.without("six", variable))
        assert {**left, variable: value} == SIX
        assert variable not in left
    assert not found


def test_settings_fit_the_topology() -> None:
    pcie = cases.settings("pcie", (8,))
    assert Setting("Ring", "LL", 8) in pcie
    assert Setting("Tree", "Simple") in pcie
    assert {s.protocol for s in pcie} == {"LL", "Simple"}
    nvlink = cases.settings("nvlink", ())
    assert Setting("Ring", "LL128") in nvlink
    assert {s.algorithm for s in nvlink} == {"Ring", "Tree"}


def test_a_setting_is_read_back_from_its_name() -> None:
    for setting in (Setting("Ring", "LL"), Setting("Tree", "Simple", 16)):
        assert Setting.read(str(setting)) == setting


def test_a_wide_environment_leaves_the_choice_to_the_tuner() -> None:
    assert cases.wide("pcie", 32) == {"NCCL_MIN_CTAS": "32"}
    assert cases.wide("nvlink", 16) == {"NCCL_MIN_CTAS": "16", "NCCL_PROTO": "LL,LL128,Simple"}


def test_without_a_plugin_a_setting_is_an_environment() -> None:
    assert cases.everywhere(Setting("Ring", "LL", 2)) == {
        "NCCL_ALGO": "Ring",
        "NCCL_PROTO": "LL",
        "NCCL_MIN_CTAS": "2",
        "NCCL_MAX_CTAS": "2",
    }
    assert cases.everywhere(Setting("Tree", "Simple")) == {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}
