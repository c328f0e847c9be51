"""Context, weights and KV cache against the model and the GPUs."""

from __future__ import annotations

import json
import struct

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import fits
from tests.unit.host.preflight.conftest import said

GIB = 1 << 30


def weigh(folder, gib):
    """A weight file of that size, which takes no room."""
    folder.mkdir(exist_ok=True)
    size = int(gib * GIB)
    header = json.dumps({"w": {"dtype": "I8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with (folder / "model.safetensors").open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        stream.truncate(size)


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({}, 0),
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 1024, "max_position_embeddings": 512}, 1024),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": 8.0}}, 32768),
        ({"max_position_embeddings": 4096, "rope_parameters": {"factor": 2}}, 8192),
        ({"max_position_embeddings": 4096, "rope_scaling": {"factor": 0.5}}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": "yarn"}, 4096),
        ({"max_position_embeddings": "4096"}, 0),
        ({"rope_scaling": {"factor": 8.0}}, 0),
        ({"text_config": {"max_position_embeddings": 77}}, 77),
        ({"max_position_embeddings": 4096, "rope_scaling": None, "rope_parameters": {"full": {"factor": 2}}}, 8192),
    ],
)
def test_the_longest_context_that_a_model_allows(subject, config, longest):
    declared = {"served_name": "tiny", "context_length": 10**9}
    found = subject(config=config)
    found.release["model"].update(declared)
    messages = [text for severity, text, _repair in said(fits.context(found)) if severity == "fatal"]
    expected = f"model.context_length is 1000000000, the model's config.json allows {longest}"
    assert messages == ([expected] if longest else [])


@pytest.mark.parametrize(("wanted", "findings"), [(None, 0), (4096, 0), (4097, 1)])
def test_a_context_beyond_the_models_is_refused_unless_the_engine_is_told_to_allow_it(subject, wanted, findings):
    def look(**environment):
        found = subject(config={"max_position_embeddings": 4096}, environment=environment)
        found.release["model"]["context_length"] = wanted
        return [(severity, repair) for severity, _message, repair in said(fits.context(found))]

    assert look() == [("fatal", "declare at most 4096")] * findings
    for name in fits.LONGER_ALLOWED:
        assert look(**{name: "True"}) == [("warning", "answers beyond that can be wrong")] * findings
        assert look(**{name: "0"}) == look()


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
OVERRIDES = {"sglang": "--json-model-override-args", "vllm": "--hf-overrides"}


@pytest.mark.parametrize("engine", OVERRIDES)
@pytest.mark.parametrize(
    ("config", "changes", "longest"),
    [
        # Qwen3 with YaRN, as its own page tells to start it; both engines take 131072.
        ({"max_position_embeddings": 40960}, {"max_position_embeddings": 131072, "rope_scaling": YARN}, None),
        ({"max_position_embeddings": 40960}, {"rope_parameters": YARN}, None),
        ({"max_position_embeddings": 40960}, {"max_position_embeddings": 65536}, 65536),
        ({"max_position_embeddings": 262144}, {"max_position_embeddings": 65536}, 65536),
        ({"max_position_embeddings": 40960, "rope_scaling": {"factor": 2}}, {"rope_scaling": {"type": "x"}}, 81920),
        ({"text_config": {"max_position_embeddings": 40960}}, {"text_config": {"max_position_embeddings": 5}}, 5),
        ({"text_config": {"max_position_embeddings": 40960}}, {"max_position_embeddings": 131072}, None),
    ],
)
def test_what_the_command_line_lays_over_config_json_counts(subject, engine, config, changes, longest):
    found = subject(OVERRIDES[engine], json.dumps(changes), engine=engine, config=config)
    found.release["model"]["context_length"] = 131072
    messages = [(severity, message) for severity, message, _repair in said(fits.context(found))]
    refused = ("fatal", f"model.context_length is 131072, the model's config.json allows {longest}")
    assert messages == ([refused] if longest else [])


@pytest.mark.parametrize(
    ("engine", "words", "flag"),
    [
        ("vllm", ["--hf-overrides.max_position_embeddings=131072"], "--hf-overrides.max_position_embeddings"),
        ("vllm", ["--hf-config-path", "/x"], "--hf-config-path"),
        ("vllm", ["--config", "/x.yaml"], "--config"),
        ("vllm", ["--rope-scaling", "{}"], "--rope-scaling"),
        ("sglang", ["--model-config-parser", "mine"], "--model-config-parser"),
    ],
)
def test_a_configuration_that_is_not_followed_refuses_nothing(subject, engine, words, flag):
    found = subject(*words, engine=engine, config={"max_position_embeddings": 40960})
    found.release["model"]["context_length"] = 131072
    message = "model.context_length is 131072, the model's config.json allows 40960"
    expected = f"{message}; what {flag} makes of it is not known here"
    assert said(fits.context(found)) == [("warning", expected, "see command_line")]


@pytest.mark.failure("5.4")
@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("sglang", ["--speculative-draft-model-path", "{}"]),
        ("vllm", ["--speculative-config", '{{"method": "eagle3", "model": "{}"}}']),
    ],
)
@pytest.mark.parametrize(("made_for", "slow"), [(4095, True), (4096, False)])
def test_5_4_a_draft_model_made_for_a_shorter_context_is_warned_about(subject, root, engine, words, made_for, slow):
    (root / "draft").mkdir()
    found = subject(*(word.format(root / "draft") for word in words), engine=engine, config={})
    found.release["model"]["context_length"] = 4096
    assert fits.context(found) == []  # that there is no config.json is another check's to tell
    (root / "draft/config.json").write_text(json.dumps({"max_position_embeddings": made_for}))
    message = f"the draft model was made for {made_for} tokens, the context is 4096: longer prompts get slower"
    expected = [("warning", message, "measure it at the length of real prompts")] if slow else []
    assert said(fits.context(found)) == expected


LLAMA = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}


@pytest.mark.parametrize(
    ("gib", "gpus", "words", "severity", "message"),
    [
        (60, 1, (), "ok", "about 60.0 GiB of weights on each GPU of 100.0 GiB, 28.0 GiB for the KV cache"),
        (120, 2, (), "ok", "about 60.0 GiB of weights on each GPU"),
        (101, 1, (), "fatal", "about 101.0 GiB of weights on each GPU of 100.0 GiB -> claim more GPUs"),
        # SGLang chooses a fraction by itself, and may choose a larger one.
        (100, 1, (), "warning", "leaves nothing for the KV cache"),
        (89, 1, (), "warning", "the fraction 0.88 of it leaves nothing for the KV cache -> declare a larger fraction"),
        (89, 1, ("--mem-fraction-static", "0.88"), "fatal", "the fraction 0.88 of it leaves nothing"),
        (89, 1, ("--mem-fraction-static", "0.95"), "ok", "6.0 GiB for the KV cache"),
        (101, 1, ("--cpu-offload-gb", "50"), "ok", "about 51.0 GiB of weights"),
    ],
)
def test_weights_against_the_memory_of_the_gpus(subject, root, gib, gpus, words, severity, message):
    found = subject(*words, gpus=gpus, config={})
    weigh(root / "model", gib)
    (one,) = fits.memory(found)
    assert one["evidence"].keys() >= {"weights_per_gpu_gib", "gpu_gib", "kv_cache_gib"}
    ((seen, text, repair),) = said([one])
    assert (seen, message in f"{text} -> {repair}") == (severity, True), text


def test_vllms_experts_are_spread_over_the_data_parallel_ranks(subject, root):
    weigh(root / "model", 640)
    words = ("--data-parallel-size", "8", "--enable-expert-parallel")
    found = subject(*words, gpus=8, config={}, engine="vllm")
    found.release["parallelism"] = {"tensor": 1, "pipeline": 1, "data": 8, "expert": 8}
    ((severity, message, _repair),) = said(fits.memory(found))
    assert (severity, message[:36]) == ("ok", "at least 80.0 GiB of weights on each")
    found.release["argv"].remove("--enable-expert-parallel")  # eight copies of the model
    assert said(fits.memory(found))[0][:2] == ("fatal", "about 640.0 GiB of weights on each GPU of 100.0 GiB")


def test_sglangs_experts_and_data_parallel_attention_stay_within_the_tensor_parallel_ranks(subject, root):
    weigh(root / "model", 640)
    found = subject("--dp-size", "8", "--ep-size", "8", "--enable-dp-attention", gpus=8, config={})
    found.release["parallelism"].update(data=8, expert=8)
    assert said(fits.memory(found))[0][:2] == (
        "ok",
        "about 80.0 GiB of weights on each GPU of 100.0 GiB, 8.0 GiB for the KV cache",
    )


@pytest.mark.parametrize(
    ("engine", "words", "config", "severity"),
    [
        ("vllm", [], {}, "fatal"),
        ("vllm", ["--quantization", "fp8"], {}, "warning"),
        ("vllm", ["--quantization", "fp8"], {"quantization_config": {}}, "fatal"),
        ("vllm", ["--quantization", "bitsandbytes"], {}, "warning"),
        ("sglang", ["--load-format", "bitsandbytes"], {}, "warning"),
        ("sglang", ["--load-format", "safetensors"], {}, "fatal"),
        ("vllm", ["--offload-backend", "uva"], {}, "warning"),
        ("sglang", ["--kt-weight-path", "/x", "--kt-num-gpu-experts", "8"], {"quantization_config": {}}, "warning"),
        ("vllm", [], {"torch_dtype": "float32"}, "warning"),
        ("vllm", ["--dtype", "float32"], {"dtype": "float32"}, "fatal"),
        ("sglang", ["--enable-expert-parallel"], {}, "fatal"),
    ],
)
def test_weights_refuse_nothing_where_gpus_may_hold_less_than_the_files(
    subject, root, engine, words, config, severity
):
    found = subject(*words, gpus=1, config=config, engine=engine)
    weigh(root / "model", 140)
    assert said(fits.memory(found))[0][:2] == (severity, "about 140.0 GiB of weights on each GPU of 100.0 GiB")
    weigh(root / "model", 95)
    found.release["argv"] += ["--mem-fraction-static", "0.9"]
    assert said(fits.memory(found))[0][0] == severity


def test_a_kv_cache_of_a_declared_size_needs_no_fraction(subject, root):
    weigh(root / "model", 95)
    assert said(fits.memory(subject(gpus=1, config={}, engine="vllm")))[0][0] == "fatal"
    found = subject("--kv-cache-memory-bytes", "1G", gpus=1, config={}, engine="vllm")
    assert said(fits.memory(found))[0][0] == "warning"


def test_weights_in_two_formats_are_weighed_once(subject, root):
    found = subject(gpus=1, config={})
    weigh(root / "model", 60)
    (root / "model/consolidated.safetensors").hardlink_to(root / "model/model.safetensors")
    assert fits.memory(found)[0]["evidence"]["weights_per_gpu_gib"] == 60.0


def test_each_pipeline_stage_has_the_cache_of_its_own_layers(subject, root):
    weigh(root / "model", 60)
    found = subject(gpus=1, config=LLAMA)
    found.release["parallelism"]["pipeline"] = 2  # half of the layers and half of the weights each
    assert fits.memory(found)[0]["evidence"]["kv_cache_tokens"] == 950272


def test_the_draft_model_and_pipeline_stages_count(subject, root):
    found = subject("--speculative-draft-model-path", str(root / "draft"), gpus=2, config={})
    weigh(root / "model", 60)
    weigh(root / "draft", 20)
    assert fits.memory(found)[0]["evidence"]["weights_per_gpu_gib"] == 40.0
    found.release["parallelism"]["pipeline"] = 2
    assert fits.memory(found)[0]["evidence"]["weights_per_gpu_gib"] == 20.0


def test_vllm_takes_a_larger_part_of_a_gpu_by_itself(subject, root):
    found = subject(gpus=1, config={}, engine="vllm")
    weigh(root / "model", 50)
    assert fits.memory(found)[0]["evidence"]["kv_cache_gib"] == 40.0


@pytest.mark.parametrize(
    ("config", "gpus", "words", "tokens"),
    [
        # 32 layers x (keys and values) x 8 heads x 128 x 2 bytes = 128 KiB a token, in 28 GiB
        (LLAMA, 1, (), 229376),
        (LLAMA, 2, (), 950272),  # half of the heads and half of the weights each: 64 KiB a token, in 58 GiB
        (LLAMA, 1, ("--kv-cache-dtype", "fp8_e4m3"), 458752),
        ({**LLAMA, "head_dim": 64}, 1, (), 458752),
        ({**LLAMA, "num_key_value_heads": None}, 1, (), 57344),
        ({"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}, 1, (), 427834),
        ({"num_hidden_layers": 32}, 1, (), None),
        ({**LLAMA, "num_hidden_layers": None}, 1, (), None),
        ({**LLAMA, "hidden_size": None}, 1, (), None),
        ({"num_hidden_layers": 32, "head_dim": 64}, 1, (), None),
        ({"num_hidden_layers": 32, "num_key_value_heads": 8, "hidden_size": 4096}, 1, (), None),
        ({}, 1, (), None),
    ],
)
def test_tokens_of_kv_cache_that_fit(subject, root, config, gpus, words, tokens):
    found = subject(*words, gpus=gpus, config=config)
    weigh(root / "model", 60)
    (seen,) = fits.memory(found)
    assert seen["evidence"].get("kv_cache_tokens") == tokens
    found.release["model"]["context_length"] = (tokens or 0) + 1
    (seen,) = fits.memory(found)
    assert seen["severity"] == ("ok" if tokens is None else "warning")
    assert seen["evidence"].get("kv_cache_tokens") == tokens
    if tokens is not None:
        assert f"leave room for about {tokens} tokens, one context is {tokens + 1}" in seen["message"]
        assert "declare a shorter context" in seen["repair"]
    found.release["model"]["context_length"] = tokens
    assert fits.memory(found)[0]["severity"] == "ok"


def test_weights_that_are_not_read_are_not_weighed(subject, root):
    weigh(root / "model", 500)
    assert fits.memory(subject("--load-format", "dummy", gpus=1, config={})) == []
    assert fits.memory(subject(config={})) == []  # no GPU
    gone = subject(gpus=2, config={})
    del gone.__dict__["_gpus"][0][1]
    assert fits.memory(gone) == []  # another check names the GPU


def test_where_something_is_not_known_nothing_is_reckoned(subject, root):
    found = subject(gpus=1)
    found.release["model"]["context_length"] = 4096
    assert fits.context(found) == fits.memory(found) == []  # there is no config.json
    (root / "model/config.json").write_text("{}")
    assert fits.memory(found) == []  # there are no weights in a known format
    weigh(root / "model", 60)
    assert fits.memory(found) != []
    found.gpus[0]["total_mib"] = 0  # a GPU that shares the host's memory
    assert fits.memory(found) == []
