"""Which attention backends are refused, warned about and let through, by engine, version, model and GPU."""

from __future__ import annotations

import json

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import attention
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import attention as preflight
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight.check import Subject
from servewright.spec import validate
from servewright.spec.host import Host
from tests.unit.spec.samples import service

SGLANG = {"engine": "sglang", "version": "0.5.23", "backend": "flashinfer", "kind": "mla", "major": 12, "cache": "",
          "experts": 1}  # fmt: skip
VLLM = {**SGLANG, "engine": "vllm", "version": "0.32.0", "backend": ""}


def severities(facts, **changes):
    return [severity for severity, _what, _use in attention.findings({**facts, **changes})]


def test_what_is_known_to_work_is_let_through():
    assert severities(SGLANG) == severities(VLLM) == severities(VLLM, backend="triton_mla") == []
    assert severities(SGLANG, backend="trtllm_mla", major=10) == []


def test_a_backend_tells_the_kind_of_models_that_it_is_for():
    assert attention.kind_of_backend("flashinfer_mla_sparse") == "sparse_mla"
    assert attention.kind_of_backend("trtllm_mla") == "mla"
    assert attention.kind_of_backend("trtllm_mha") is None


def test_a_finding_names_the_backend_where_it_is_to_blame_and_the_engine_where_all_backends_are():
    ((_, of_backend, _),) = attention.findings({**SGLANG, "backend": "trtllm_mla", "version": "0.5.10"})
    assert of_backend.startswith("attention backend trtllm_mla on compute capability 12.x: its MLA prefill has")
    ((_, of_engine, _),) = attention.findings({**SGLANG, "version": "0.5.9", "backend": "triton", "experts": 8})
    assert of_engine.startswith("sglang 0.5.9 on compute capability 12.x: expert parallelism served gibberish")


@pytest.mark.parametrize(
    ("major", "left"),
    [
        (8, set()),
        (9, {"flashmla", "flashmla_sparse", "flash_attn_mla"}),
        (10, {"flashmla", "flashmla_sparse", "cutlass_mla", "flashinfer_mla", "flashinfer_mla_sparse"}),
        (12, {"flashinfer_mla_sparse_sm120"}),
    ],
)
def test_which_backends_for_mla_vllm_has_on_a_gpu_besides_triton(major, left):
    named = {name for rule in attention.RULES if rule.engine == "vllm" for name in rule.backends or () if "mla" in name}
    allowed = {name for name in named if "refuse" not in severities(VLLM, backend=name, kind=None, major=major)}
    assert allowed == {*left, "triton_mla"}


@pytest.mark.failure("4.1")
def test_4_1_a_backend_without_a_kernel_for_the_gpu_is_refused_in_the_versions_that_fail():
    assert severities(SGLANG, backend="trtllm_mla", version="0.5.10") == ["refuse"]
    assert severities(SGLANG, backend="", version="0.5.10") == ["refuse"]  # what SGLang takes by itself there
    assert severities(SGLANG, backend="trtllm_mla") == ["warn"]
    assert severities(SGLANG, backend="trtllm_mla", kind=None, version="0.5.10") == []


@pytest.mark.failure("4.2")
def test_4_2_trtllm_mha_is_refused_where_the_engine_refuses_it():
    assert severities(SGLANG, backend="trtllm_mha", kind=None, version="0.5.17") == ["refuse"]
    assert severities(SGLANG, backend="trtllm_mha", kind=None) == []
    assert severities(SGLANG, backend="trtllm_mha", kind=None, cache="fp8_e4m3") == ["refuse"]


@pytest.mark.failure("4.3")
def test_4_3_rules_are_keyed_by_version_and_an_unknown_one_is_warned_about():
    assert severities(SGLANG, version="0.5.10") == ["warn"]
    assert severities(VLLM, backend="flashmla") == ["refuse"]
    assert severities(VLLM, backend="flashmla", version="0.40.0") == ["warn"]
    assert severities(SGLANG, backend="cutedsl_mla", version="0.6.1") == ["warn"]


@pytest.mark.failure("4.4")
def test_4_4_expert_parallelism_on_compute_capability_12():
    assert severities(SGLANG, experts=8, version="0.5.9")[-1] == "refuse"
    assert severities(SGLANG, experts=8) == ["warn"]
    assert severities(SGLANG, experts=8, major=10) == []


@pytest.mark.failure("4.5")
def test_4_5_sparse_attention_in_vllm_names_the_engine_that_serves_it():
    found = attention.findings({**VLLM, "kind": "sparse_mla", "backend": "flashmla_sparse"})
    assert [severity for severity, _what, _use in found] == ["refuse"]
    ((severity, what, use),) = attention.findings({**VLLM, "kind": "sparse_mla"})
    assert (severity, "compute capability 12.x" in what, "SGLang" in use) == ("warn", True, True)


def test_the_kind_of_a_model_is_read_from_its_configuration():
    assert attention.kind_of({"kv_lora_rank": 512}) == "mla"
    assert attention.kind_of({"text_config": {"kv_lora_rank": 512, "index_topk": 2048}}) == "sparse_mla"
    assert attention.kind_of({"num_attention_heads": 64}) is None


def _subject(tmp_path, config, argv, **release):
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = Subject(
        {"service": "kimi", "engine": "sglang", "version": "0.5.10", "gpus": [0], "argv": argv,
         "model": {"path": str(tmp_path), "context_length": 131072}, **release}
    )  # fmt: skip
    found._gpus = {0: {"compute_capability": "12.0"}, 1: {"compute_capability": "9.0"}}, ""
    return found


def test_preflight_refuses_the_backend_for_the_model_and_the_gpus_that_are_there(tmp_path):
    argv = ["python", "--attention-backend", "trtllm_mla"]
    (found,) = preflight.backend(_subject(tmp_path, {"kv_lora_rank": 512}, argv))
    assert (found["severity"], "flashinfer" in found["repair"]) == ("fatal", True)
    assert preflight.backend(_subject(tmp_path, {"kv_lora_rank": 512}, argv, gpus=[1])) == []
    assert preflight.backend(_subject(tmp_path, {"kv_lora_rank": 512}, argv, gpus=[])) == []


def test_validate_refuses_it_without_a_connection_where_the_host_declares_its_gpus():
    declared = service(engine="vllm", version="0.32.0", gpus=[0], options={"attention_backend": "FLASHMLA"})
    with pytest.raises(ValueError, match="no kernel for this GPU"):
        validate.services([declared], host=Host(compute_capability="12.0"))
    assert validate.services([declared], host=Host(compute_capability="9.0"))
    assert validate.services([declared], host=Host())
