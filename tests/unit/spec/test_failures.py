"""Reported failures (tests/failures.yml) that a declaration would bring about are refused without a connection."""

from __future__ import annotations

import pytest

from servewright.spec import validate
from servewright.spec.problems import InvalidError
from tests.hosts.commands import rendered
from tests.unit.spec.samples import service

TWO = {"gpus": [0, 1], "parallelism": {"tensor": 2}}


def problems(host=None, **changes):
    """What is said of a declaration, with the way to put it right; "" when it is valid."""
    try:
        validate.services([service(**changes)], host=validate.host(host or {}))
    except InvalidError as error:
        return str(error)
    return ""


@pytest.mark.failure("3.3")
def test_3_3_custom_all_reduce_of_two_ranks_without_p2p():
    off = {"nccl": {"environment": {"NCCL_P2P_DISABLE": "1"}}}
    assert "add --disable-custom-all-reduce" in problems(**TWO, **off)
    assert problems(**TWO, **off, options={"disable_custom_all_reduce": True}) == ""
    four = {"gpus": [0, 1, 2, 3], "parallelism": {"tensor": 4}}
    assert problems(**four, **off) == ""


@pytest.mark.failure("3.4")
def test_3_4_custom_all_reduce_of_two_ranks_on_compute_capability_12():
    assert "fails when CUDA graphs are captured" in problems({"compute_capability": "12.0"}, **TWO)
    assert problems({"compute_capability": "9.0"}, **TWO) == ""


@pytest.mark.failure("3.8")
def test_3_8_an_algorithm_that_a_collective_does_not_have():
    pcie = {"interconnect": "pcie"}
    assert "NCCL_ALGO" in problems(pcie, **TWO, nccl={"environment": {"NCCL_ALGO": "NVLS"}})


@pytest.mark.failure("6.6")
def test_6_6_variables_that_are_no_settings_of_vllm():
    vllm = {"engine": "vllm", "version": "0.32.0"}
    for name in ("VLLM_MODEL", "VLLM_HOST", "VLLM_SERVE_ARGS"):
        said = problems(**vllm, environment={name: "x"})
        assert f"{name} does not do what it says (not a setting of vLLM; declare " in said


@pytest.mark.failure("6.8")
def test_6_8_secrets_where_every_user_can_read_them():
    assert "declare it under 'secrets', by reference" in problems(environment={"HF_TOKEN": "hf_x"})
    assert "would put a secret on the command line" in problems(extra_args={"api-key": "x"})


@pytest.mark.failure("6.20")
def test_6_20_caches_of_two_versions_are_apart():
    old, new = (rendered(service(version=version)) for version in ("0.5.22", "0.5.23"))
    assert old["cache"] != new["cache"]
    inside = [name for name, value in new["environment"].items() if value.startswith(new["cache"])]
    assert {"HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"} <= set(inside)
    assert not [name for name, value in new["environment"].items() if value.startswith(old["cache"])]
