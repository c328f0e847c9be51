"""What is known of engines' command lines, by version, with sources. Data only."""

from __future__ import annotations

# Flags that a version no longer has: engine, flag, first version without it ("" where only the source is known), what
# to do about it, source. "recorded" means: the parsers of 0.5.17, 0.5.22 and 0.5.23 (SGLang) or of 0.26.0, 0.31.0 and
# 0.32.0 (vLLM) were listed and compared, and both names set the same field.
_RETIRED = "recorded; sgl-project/sglang#38375"
REMOVED_FLAGS = (
    (
        "vllm",
        "--disable-log-requests",
        "0.12.0",
        "leave it out: requests are not logged unless --enable-log-requests asks for it",
        "vllm-project/vllm#29402, kserve/kserve#6037",
    ),
    ("vllm", "--enable-reasoning", "", "leave it out: --reasoning-parser alone turns it on", "vllm-project/vllm#18538"),
    ("vllm", "--task", "", "declare --runner, and --convert where a model is adapted", "vllm/utils/argparse_utils.py"),
    (
        "vllm",
        "--guided-decoding-backend",
        "",
        "declare structured-outputs-config: {backend: ...}",
        "vllm-project/vllm#22772",
    ),
    ("vllm", "--speculative-model", "", "declare options.speculative_config", "vllm-project/vllm#15466"),
    ("vllm", "--num-speculative-tokens", "", "declare options.speculative_config", "vllm-project/vllm#15466"),
    ("sglang", "--enable-ep-moe", "", "declare parallelism.expert", "sgl-project/sglang#8658, #10770"),
    ("sglang", "--enable-deepep-moe", "", "declare moe-a2a-backend: deepep", "sgl-project/sglang#8658, #10770"),
    (
        "sglang",
        "--enable-flashinfer-mla",
        "",
        "declare options.attention_backend: flashinfer",
        "sgl-project/sglang#5480",
    ),
    ("sglang", "--enable-flashmla", "", "declare options.attention_backend: flashmla", "sgl-project/sglang#5480"),
    ("sglang", "--cuda-graph-bs", "0.5.22", "declare cuda-graph-bs-decode", _RETIRED),
    ("sglang", "--cuda-graph-max-bs", "0.5.22", "declare cuda-graph-max-bs-decode", _RETIRED),
    ("sglang", "--nsa-prefill-backend", "0.5.22", "declare dsa-prefill-backend", _RETIRED),
    ("sglang", "--nsa-decode-backend", "0.5.22", "declare dsa-decode-backend", _RETIRED),
    ("sglang", "--piecewise-cuda-graph-max-tokens", "0.5.22", "declare cuda-graph-max-bs-prefill", _RETIRED),
    ("sglang", "--piecewise-cuda-graph-tokens", "0.5.22", "declare cuda-graph-bs-prefill", _RETIRED),
    ("sglang", "--disable-piecewise-cuda-graph", "0.5.22", "declare cuda-graph-backend-prefill: disabled", _RETIRED),
    (
        "sglang",
        "--enforce-piecewise-cuda-graph",
        "0.5.22",
        "declare cuda-graph-backend-prefill: tc_piecewise",
        _RETIRED,
    ),
)

# What an engine says of a model or a flag that is wrong on any machine: engine, expression, where it was seen. Other
# refusals of a configuration that is made without a GPU may come of that alone, and are told as a warning.
CERTAIN = (
    ("vllm", r"max_model_len", "0.32.0, a context longer than the model's"),
    ("vllm", r"attention heads .* divisible", "0.32.0, tensor parallel size"),
    ("vllm", r"[Mm]odel architectures? .* not supported", "0.32.0, vllm/model_executor/models/registry.py"),
    ("vllm", r"Unknown attention backend", "0.32.0"),
    ("vllm", r"requires --", "0.32.0, validate_parsed_serve_args"),
    ("vllm", r"chat template .* doesn't exist", "0.32.0, validate_parsed_serve_args"),
    ("sglang", r"context_length .* greater than the derived", "0.5.23"),
    ("sglang", r"must be divisible by tp_size", "0.5.23"),
    ("", r"config\.json|config file|Repo id must be|not a valid JSON file", "transformers 5.12.1"),
)

# What an engine says only because it was given no GPU: it tells nothing of the release.
NO_GPU = (
    ("sglang", r"No accelerator \(CUDA", "0.5.17, seen on a host with two H200"),
    ("vllm", r"Failed to infer device type", "0.32.0, seen without a GPU"),
)
