from __future__ import annotations

from typing import Any

import pytest

from servewright.release import measure

SIX = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}
OWN = {"name": "ours", "settings": {"NCCL_PROTO": {"value": "Simple", "reason": "a try"}}}


def _request(
    what: str = "bench",
    argv: tuple[str, ...] = (),
    own: dict[str, Any] = OWN,
    declared: dict[str, str] = SIX,
    **options: Any,
) -> dict[str, Any]:
    release = {"environment": {**declared, "PATH": "/bin"}, "nccl": sorted(declared), "argv": list(argv)}
    variables = {"servewright_nccl_profiles": [own]}
    return measure.request(what, release, measure.Options.model_validate(options), variables)


def test_all_profiles_nothing_and_what_is_declared_are_compared() -> None:
    found = _request()["profiles"]
    assert list(found) == ["nothing set", "pcie-ll-ring", "pcie-throughput", "ours", "as declared"]
    assert found["nothing set"] == {}
    assert found["ours"] == {"NCCL_PROTO": "Simple"}
    assert found["as declared"] == SIX


def test_named_profiles_alone_are_compared_with_both() -> None:
    assert list(_request(profiles=["ours"])["profiles"]) == ["nothing set", "ours", "as declared"]


def test_an_ablated_profile_is_measured_whole_as_well() -> None:
    found = _request("tune", profiles=["ours"], ablate="pcie-ll-ring")
    assert (found["ablate"], found["profiles"]["pcie-ll-ring"]["NCCL_PROTO"]) == ("pcie-ll-ring", "LL")


def test_what_is_declared_of_the_hardware_is_held_and_what_is_declared_of_speed_is_not() -> None:
    assert _request()["held"] == {}
    held = _request(declared={**SIX, "NCCL_P2P_DISABLE": "1"})
    assert held["held"] == {"NCCL_P2P_DISABLE": "1"}


def test_the_dtype_is_the_engines() -> None:
    assert _request(argv=("vllm", "--dtype", "float16"))["dtype"] == "float16"
    assert _request()["dtype"] is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"profiles": ["pcie-ll-rng"]}, "pcie-ll-rng"),
        ({"weight_decode": 0, "weight_prefill": 0}, "must not both be 0"),
        ({"weight_decode": -1}, "greater than or equal to 0"),
        ({"secnds": 4}, "secnds"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _request(**options)


def test_what_acts_on_programs_that_start_is_refused() -> None:
    own = {**OWN, "settings": {"LD_PRELOAD": {"value": "/lib/x.so", "reason": "a try"}}}
    with pytest.raises(ValueError, match="ours: LD_PRELOAD acts on programs that start"):
        _request(own=own)
