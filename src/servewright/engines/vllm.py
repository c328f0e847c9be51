"""vLLM. Read in the source of 0.32.0 (`engine/arg_utils.py`, `entrypoints/`, `envs.py`)."""

from __future__ import annotations

from typing import Any

from servewright.engines.base import UNSEEN_FLAGS, Engine, Words, option_flags
from servewright.spec.options import VllmOptions
from servewright.spec.service import Service


def _command(service: Service, venv: str) -> Words:
    # bin/vllm is a script: called through the interpreter, the kernel shows exactly these words in /proc/PID/cmdline.
    return [f"{venv}/bin/python", f"{venv}/bin/vllm", "serve", service.model.path]


def _flags(service: Service) -> list[Words]:
    words: list[Words] = [
        ["--served-model-name", service.model.served_name],
        ["--host", service.listen.host],
        ["--port", str(service.listen.port)],
    ]
    sizes = service.parallelism
    for flag, size in (
        ("--tensor-parallel-size", sizes.tensor),
        ("--pipeline-parallel-size", sizes.pipeline),
        ("--data-parallel-size", sizes.data),
    ):
        if size != 1:
            words.append([flag, str(size)])
    if sizes.expert != 1:
        # vLLM has a switch, not a size: its expert parallel size is the product of the tensor and data sizes.
        words.append(["--enable-expert-parallel"])
    if service.model.context_length is not None:
        words.append(["--max-model-len", str(service.model.context_length)])
    return words + option_flags(service)


def _expected(service: Service) -> dict[str, Any]:
    """Settings that the engine shows as they are in force, where they are declared."""
    options = service.options
    assert isinstance(options, VllmOptions)
    expected: dict[str, Any] = {
        "tensor_parallel_size": service.parallelism.tensor,
        "attention_backend": options.attention_backend,
        "dtype": options.dtype,
        "kv_cache_dtype": options.kv_cache_dtype,
        "speculation": options.speculative_config is not None or None,
    }
    return {name: value for name, value in expected.items() if value not in (None, "auto")}


def _observed(service: Service) -> dict[str, int]:
    assert isinstance(service.options, VllmOptions)
    limit = service.options.max_num_seqs
    return {} if limit is None else {"max_running_requests": limit}


# One line of the engine core with its whole resolved configuration.
_CONFIG = r"Initializing a V1 LLM engine .*?\b"


VLLM = Engine(
    name="vllm",
    command=_command,
    flags=_flags,
    expected=_expected,
    owned={
        "--model": "model.path",
        "--served-model-name": "model.served_name",
        "--host": "listen.host",
        "--port": "listen.port",
        "--max-model-len": "model.context_length",
        "--tensor-parallel-size": "parallelism.tensor",
        "-tp": "parallelism.tensor",
        "--pipeline-parallel-size": "parallelism.pipeline",
        "-pp": "parallelism.pipeline",
        "--data-parallel-size": "parallelism.data",
        "-dp": "parallelism.data",
        "--enable-expert-parallel": "parallelism.expert",
    },
    secret_flags={
        "--api-key": "declare VLLM_API_KEY under 'secrets' instead; a flag can be read by every user of the host",
        "--ssl-keyfile-password": "a password in a flag can be read by every user of the host",
    },
    unseen_flags={**UNSEEN_FLAGS, "--uds": "the gates ask over TCP: declare 'listen'"},
    endpoints={
        "health": ["/health"],
        "models": ["/v1/models"],
        "completions": ["/v1/completions"],
        "chat": ["/v1/chat/completions"],
        "model": [],
        "info": [],
        "load": ["/metrics"],
        "version": ["/version"],
    },
    log_lines={
        "ready": r"Application startup complete",
        "progress": r"Loading (weights|safetensors)|Capturing CUDA graph|torch.compile|KV cache size|Compil",
    },
    # The server info is 404 outside the development mode and echoes the request even there; the log tells.
    truth={
        "tensor_parallel_size": [("log", _CONFIG + r"tensor_parallel_size=(\d+)")],
        "attention_backend": [("log", r"Using (?:AttentionBackendEnum\.)?(\w+) (?:attention )?backend")],
        "dtype": [("log", _CONFIG + r"dtype=torch\.(\w+)")],
        "kv_cache_dtype": [("log", _CONFIG + r"kv_cache_dtype=(\w+)")],
        "speculation": [("log", _CONFIG + r"speculative_config=(\w+)")],
        "max_total_tokens": [
            ("metrics", r'^vllm:cache_config_info\{.*kv_cache_size_tokens="(\d+)"'),
            ("log", r"KV cache size: ([\d,]+) tokens"),
        ],
    },
    observed=_observed,
    metrics={
        "running": ["vllm:num_requests_running"],
        "queued": ["vllm:num_requests_waiting"],
        "tokens": ["vllm:prompt_tokens_total", "vllm:generation_tokens_total"],
        # Counted at every step, before the pieces of an answer leave for the client (v1/engine/async_llm.py,
        # _run_output_handler); prompts with what the prefix cache held of them (v1/metrics/stats.py, PromptTokenStats).
        "answered": ["vllm:prompt_tokens_total", "vllm:generation_tokens_total"],
        "cache": ["vllm:kv_cache_usage_perc"],
    },
    acceptance={
        "metrics": {
            "accepted": ["vllm:spec_decode_num_accepted_tokens_total"],
            "drafts": ["vllm:spec_decode_num_drafts_total"],
        }
    },
    environment={"VLLM_NO_USAGE_STATS": "1"},
    reserved_environment={
        "VLLM_MODEL": "not a setting of vLLM; declare model.path",
        "VLLM_SERVE_ARGS": "not a setting of vLLM; declare options or extra_args",
        "VLLM_HOST": "not a setting of vLLM; declare listen.host",
        "VLLM_PORT": "the port of vLLM's own processes, not of its HTTP server; declare listen.port",
    },
)
