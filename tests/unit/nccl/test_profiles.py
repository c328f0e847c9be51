from __future__ import annotations

import pytest

from servewright.nccl import profiles
from servewright.nccl.facts import Facts
from servewright.nccl.profiles import Profile

SIX = {
    "NCCL_PROTO": "LL",
    "NCCL_ALGO": "Ring",
    "NCCL_P2P_LEVEL": "SYS",
    "NCCL_MAX_NCHANNELS": "16",
    "NCCL_BUFFSIZE": "16777216",
    "NCCL_NTHREADS": "512",
}
MINE = Profile.model_validate(
    {"name": "mine", "settings": {"NCCL_PROTO": {"value": "LL,LL128,Simple", "reason": "measured here"}}}
)


def _environment(*args: object, **kwargs: object) -> dict[str, str]:
    return {row.variable: row.value for row in profiles.resolve(*args, **kwargs)}  # type: ignore[arg-type]


def test_pcie_ll_ring_is_exactly_the_six() -> None:
    assert _environment("pcie-ll-ring") == SIX


def test_pcie_throughput_takes_the_host_memory_path() -> None:
    environment = _environment("pcie-throughput")
    assert environment["NCCL_P2P_DISABLE"] == "1"
    assert int(environment["NCCL_MIN_NCHANNELS"]) == 32
    assert int(environment["NCCL_MAX_NCHANNELS"]) == 64
    assert int(environment["NCCL_BUFFSIZE"]) == 64 * 2**20


@pytest.mark.parametrize("name", [None, "nvlink-default"])
def test_nothing_set(name: str | None) -> None:
    assert profiles.resolve(name) == []


@pytest.mark.parametrize(
    ("facts", "chosen"),
    [
        ({}, None),
        ({"interconnect": "nvlink", "gpu_count": 8}, "nvlink-default"),
        ({"interconnect": "pcie", "p2p": True, "compute_capability": "12.0", "gpu_count": 8}, "pcie-ll-ring"),
        ({"interconnect": "pcie", "p2p": False, "compute_capability": "12.0"}, "pcie-throughput"),
        ({"interconnect": "pcie", "compute_capability": "12.0"}, None),  # P2P untested: never guess
        ({"interconnect": "pcie", "p2p": True, "compute_capability": "8.9"}, None),
        ({"interconnect": "pcie", "p2p": True, "compute_capability": "12.0", "gpu_count": 1}, None),
        ({"interconnect": "nvlink", "tensor_parallel": 1}, None),
    ],
)
def test_auto_follows_the_facts(facts: dict[str, object], chosen: str | None) -> None:
    assert profiles.choose(Facts.model_validate(facts)).profile == chosen


def test_auto_says_why() -> None:
    rows = profiles.resolve("auto", facts=Facts(interconnect="pcie", p2p=False))
    assert rows
    assert all("auto: P2P does not work here" in row.origin for row in rows)


def test_inventory_wins_and_can_remove() -> None:
    rows = {
        row.variable: row
        for row in profiles.resolve("pcie-ll-ring", (), {"NCCL_PROTO": "Simple", "NCCL_NTHREADS": None})
    }
    assert (rows["NCCL_PROTO"].value, rows["NCCL_PROTO"].origin) == ("Simple", "inventory")
    assert "NCCL_NTHREADS" not in rows
    assert rows["NCCL_ALGO"].origin == "profile pcie-ll-ring v1"


def test_user_profile_resolves_like_a_built_in_one() -> None:
    assert _environment("mine", [MINE]) == {"NCCL_PROTO": "LL,LL128,Simple"}


def test_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(profiles.UnknownProfileError, match="auto, mine, nvlink-default, pcie-ll-ring"):
        profiles.resolve("pcie-ll-rnig", [MINE])


def test_user_profile_cannot_hide_a_built_in_one() -> None:
    with pytest.raises(ValueError, match="built in"):
        profiles.resolve("mine", [MINE, MINE.model_copy(update={"name": "pcie-ll-ring"})])


def test_every_setting_has_a_reason() -> None:
    for profile in profiles.built_in().values():
        for name, setting in profile.settings.items():
            assert len(setting.reason) > 20, (profile.name, name)
