"""SGLang. Read in the source of 0.5.17 and 0.5.23 (`srt/server_args.py`, `srt/entrypoints/http_server.py`)."""

from __future__ import annotations

from typing import Any

from servewright.engines.base import Engine, Words, option_flags
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
    """Fields of the server info that show what is in force, where they are declared."""
    expected: dict[str, Any] = {"tp_size": service.parallelism.tensor}
    backend = getattr(service.options, "attention_backend", None)
    if backend is not None:
        expected["attention_backend"] = backend
    return expected


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
    endpoints={
        "health": ["/health"],
        "models": ["/v1/models"],
        "completions": ["/v1/completions"],
        "model": ["/model_info", "/get_model_info"],
        # The old name answers with a warning in 0.5.17 and later and is announced to go away.
        "info": ["/server_info", "/get_server_info"],
        "load": ["/v1/loads"],
    },
    log_lines={
        "ready": r"The server is fired up and ready to roll!",
        "progress": r"Load(ing)? (weight|safetensors)|Captur(e|ing)|KV Cache is allocated|Compil",
    },
)
