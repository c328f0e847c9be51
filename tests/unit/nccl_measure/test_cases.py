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
    pcie = cases.settings("all_reduce", "pcie", (None, 8))
    assert Setting("Ring", "LL", 8) in pcie
    assert Setting("Tree", "Simple") in pcie
    assert not any(s.protocol == "LL128" or s.algorithm == "NVLS" for s in pcie)
    assert Setting("Ring", "LL128", 8) in cases.settings("all_reduce", "pcie", (8,), ll128=True)
    nvlink = cases.settings("all_reduce", "nvlink", (None,))
    assert Setting("Ring", "LL128") in nvlink
    assert [s for s in nvlink if s.algorithm == "NVLS"] == [Setting("NVLS", "Simple")]
    assert not any(s.algorithm == "NVLS" for s in cases.settings("all_reduce", "nvlink", nvls=False))
    assert {s.algorithm for s in cases.settings("all_gather", "pcie")} == {"Ring"}


def test_a_setting_is_read_back_from_its_name() -> None:
    for setting in (Setting("Ring", "LL"), Setting("Tree", "Simple", 16)):
        assert Setting.read(str(setting)) == setting


def test_a_wide_environment_leaves_the_choice_to_the_tuner() -> None:
    wide = cases.widened(SIX, 32, ("LL", "Simple"))
    assert wide == {
        "NCCL_P2P_LEVEL": "SYS",
        "NCCL_BUFFSIZE": "16777216",
        "NCCL_NTHREADS": "512",
        "NCCL_MIN_CTAS": "32",
    }
    assert cases.widened({}, 32)["NCCL_PROTO"] == "LL,LL128,Simple"


def test_without_a_plugin_a_setting_is_an_environment() -> None:
    listed = {"all_reduce": [Setting("Ring", "LL", 2), Setting("Tree", "Simple")]}
    fixed, free = cases.sweep_without_plugin({"NCCL_P2P_LEVEL": "SYS", "NCCL_ALGO": "Tree"}, listed)
    assert fixed.environment == {
        "NCCL_P2P_LEVEL": "SYS",
        "NCCL_ALGO": "Ring",
        "NCCL_PROTO": "LL",
        "NCCL_MIN_CTAS": "2",
        "NCCL_MAX_CTAS": "2",
    }
    assert free.environment == {"NCCL_P2P_LEVEL": "SYS", "NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}
