"""SGLang. Read in the source of 0.5.17 and 0.5.23 (`srt/server_args.py`, `srt/entrypoints/http_server.py`)."""

from __future__ import annotations

from typing import Any

from servewright.engines.base import UNSEEN_FLAGS, Engine, Words, extra, option_flags
from servewright.spec.options import SglangOptions
from servewright.spec.service import Service


def _command(service: Service, venv: str) -> Words:
    return [f"{venv}/bin/python", "-m", "sglang.launch_server"]


def _flags(service: Service) -> list[Words]:
    words: list[Words] = [
        ["--model-path", service.model.path],
        ["--served-model-name", service.model.served_name],
        ["--host", service.listen.host],
        ["--port", str(service.listen.port)],
    ]
    sizes = service.parallelism
    for flag, size in (
        ("--tp-size", sizes.tensor),
        ("--pp-size", sizes.pipeline),
        ("--dp-size", sizes.data),
        ("--ep-size", sizes.expert),
    ):
        if size != 1:
            words.append([flag, str(size)])
    if service.model.context_length is not None:
        words.append(["--context-length", str(service.model.context_length)])
    return words + option_flags(service)


def _expected(service: Service) -> dict[str, Any]:
    """Settings that the engine reports as they are in force, where they are declared."""
    options = service.options
    assert isinstance(options, SglangOptions)
    limit = options.max_running_requests
    ranks = service.parallelism.data if extra(service, "enable-dp-attention") else 1
    expected: dict[str, Any] = {
        "tp_size": service.parallelism.tensor,
        "attention_backend": options.attention_backend,
        # Data-parallel attention divides the limit among the ranks; whole copies of the model have it each.
        "max_running_requests": limit and limit // ranks,
        "max_total_tokens": options.max_total_tokens,
        "dtype": options.dtype,
        "kv_cache_dtype": options.kv_cache_dtype,
        "speculative_algorithm": extra(service, "speculative-algorithm"),
    }
    return {name: value for name, value in expected.items() if value not in (None, "auto")}


SGLANG = Engine(
    name="sglang",
    command=_command,
    flags=_flags,
    expected=_expected,
    owned={
        "--model-path": "model.path",
        "--model": "model.path",
        "--served-model-name": "model.served_name",
        "--host": "listen.host",
        "--port": "listen.port",
        "--context-length": "model.context_length",
        "--tp-size": "parallelism.tensor",
        "--tp": "parallelism.tensor",
        "--tensor-parallel-size": "parallelism.tensor",
        "--pp-size": "parallelism.pipeline",
        "--pipeline-parallel-size": "parallelism.pipeline",
        "--dp-size": "parallelism.data",
        "--data-parallel-size": "parallelism.data",
        "--ep-size": "parallelism.expert",
        "--ep": "parallelism.expert",
        "--expert-parallel-size": "parallelism.expert",
    },
    secret_flags={
        "--api-key": "SGLang takes its key only as a flag, which every user of the host can read; "
        "listen on a loopback address and put a proxy that checks keys before it",
        "--admin-api-key": "SGLang takes its key only as a flag, which every user of the host can read",
        "--ssl-keyfile-password": "a password in a flag can be read by every user of the host",
    },
    unseen_flags=UNSEEN_FLAGS,
    endpoints={
        "health": ["/health"],
        "models": ["/v1/models"],
        "completions": ["/v1/completions"],
        "chat": ["/v1/chat/completions"],
        "model": ["/model_info", "/get_model_info"],
        # The old name answers with a warning in 0.5.17 and later and is announced to go away.
        "info": ["/server_info", "/get_server_info"],
        "load": ["/v1/loads"],
        "version": ["/server_info", "/get_server_info"],  # a field of it; there is no /version
    },
    log_lines={
        "ready": r"The server is fired up and ready to roll!",
        "progress": r"Load(ing)? (weight|safetensors)|Captur(e|ing)|KV Cache is allocated|Compil",
    },
    # Top level fields are the launcher's arguments, resolved; those of internal_states are the scheduler's, which may
    # change them once more when it sees the GPU and the model. max_running_requests is an echo in both, and so is
    # dtype, which no version logs either.
    truth={
        "tp_size": [("info", "tp_size")],
        "attention_backend": [("info", "internal_states.*.attention_backend"), ("info", "attention_backend")],
        "max_running_requests": [
            ("info", "internal_states.*.effective_max_running_requests_per_dp"),
            ("log", r"\bmax_running_requests=(\d+)"),
        ],
        "max_total_tokens": [("info", "max_total_num_tokens"), ("log", r"\bmax_total_num_tokens=(\d+)")],
        "kv_cache_dtype": [("log", r"KV Cache is allocated\. dtype: ([\w.]+)"), ("info", "kv_cache_dtype")],
        "speculative_algorithm": [("info", "speculative_algorithm")],
    },
    metrics={
        "running": ["sglang:num_running_reqs"],
        "queued": ["sglang:num_queue_reqs"],
        # The first two count requests that have ended, the third every step.
        "tokens": ["sglang:prompt_tokens_total", "sglang:generation_tokens_total", "sglang:realtime_tokens_total"],
        # Counted when a request ends, before its last piece leaves for the client (managers/tokenizer_manager.py,
        # collect_metrics). The gauges are as old as decode_log_interval steps, and every rank counts in the third.
        "answered": ["sglang:prompt_tokens_total", "sglang:generation_tokens_total"],
        "cache": ["sglang:token_usage"],
    },
    # The average of the server info is of all requests since the start: it is asked where steps are not counted.
    acceptance={
        "metrics": {"tokens": ["sglang:generation_tokens_total"], "steps": ["sglang:spec_verify_calls_total"]},
        "info": "internal_states.*.avg_spec_accept_length",
    },
)
