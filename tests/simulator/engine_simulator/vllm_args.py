"""vLLM's command line: the flexible parser, its cross checks, the configuration made from it."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
from typing import Any

from . import flags, gpus, model
from .launch import Launch
from .misbehaviour import Misbehaviour

BACKENDS = (
    "FLASH_ATTN", "FLASH_ATTN_DIFFKV", "TRITON_ATTN", "TRITON_ATTN_DIFFKV",
    "TRITON_FLASH_ATTN", "ROCM_ATTN", "ROCM_AITER_MLA", "TORCH_SDPA",
    "FLASHINFER", "TRITON_FLASHINFER", "FLASHINFER_MLA", "TOKENSPEED_MLA",
    "FLASHINFER_MLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM120", "FLASHINFER_MLA_SPARSE_SM90", "TRITON_MLA",
    "CUTLASS_MLA", "FLASHMLA", "FLASHMLA_SPARSE", "FLASH_ATTN_MLA",
    "FLASH_ATTN_MLA_SPARSE", "NO_ATTENTION", "FLEX_ATTENTION", "CPU_ATTN",
    "CPU_MLA", "CUSTOM",
)  # fmt: skip


class FlexibleArgumentParser(argparse.ArgumentParser):
    """Underscores in flag names, --flag.key value for JSON flags; the last duplicate wins."""

    def parse_args(self, args: list[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        plain: list[str] = []
        nested: dict[str, dict[str, Any]] = {}
        todo = list(args if args is not None else [])
        while todo:
            word = todo.pop(0)
            name, equals, value = word.partition("=")
            if not name.startswith("--"):
                plain.append(word)
                continue
            head, dot, keys = name.partition(".")
            head = "--" + head[2:].replace("_", "-")
            if not dot:
                plain.append(head + equals + value)
                continue
            text = value if equals else (todo.pop(0) if todo else "")
            try:
                leaf = json.loads(text)
            except ValueError:
                leaf = text
            target = nested.setdefault(head, {})
            *parents, last = keys.split(".")
            for parent in parents:
                target = target.setdefault(parent, {})
            target[last] = leaf
        for flag, value_dict in nested.items():
            plain += [flag, json.dumps(value_dict)]
        return super().parse_args(plain, namespace)


def make_arg_parser(parser: argparse.ArgumentParser, version: str) -> argparse.ArgumentParser:
    parser.add_argument("model_tag", type=str, nargs="?")
    flags.add_flags(parser, "vllm", version)
    return parser


def validate_parsed_serve_args(args: argparse.Namespace) -> None:
    """The checks between flags; TypeError as in the real engine."""
    if args.enable_auto_tool_choice and not args.tool_call_parser:
        raise TypeError("Error: --enable-auto-tool-choice requires --tool-call-parser")
    if getattr(args, "enable_log_outputs", False) and not args.enable_log_requests:
        raise TypeError("Error: --enable-log-outputs requires --enable-log-requests")
    template = args.chat_template
    if template and not pathlib.Path(template).exists() and not re.search(r"[{}]", template):
        raise ValueError(f"The supplied chat template string ({template}) appears path-like, but doesn't exist!")


def speculation(args: argparse.Namespace) -> dict[str, Any] | None:
    text = args.speculative_config
    if text is None:
        return None
    try:
        return dict(json.loads(text) if isinstance(text, str) else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to {json.loads}.") from error


def check_config(args: argparse.Namespace, config: dict[str, Any]) -> None:
    """What building the engine configuration refuses before anything starts; ModelError with the last line."""
    longest = model.max_length(config)
    wanted = args.max_model_len
    if wanted and wanted > longest and os.environ.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1":
        raise model.ModelError(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            f"  Value error, User-specified max_model_len ({wanted}) is greater than the derived max_model_len "
            f"(max_position_embeddings={longest} or model_max_length=None in model's config.json). To allow "
            "overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
        )
    heads = model.attention_heads(config)
    if heads % args.tensor_parallel_size:
        raise model.ModelError(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
            f"  Value error, Total number of attention heads ({heads}) must be divisible by tensor parallel size "
            f"({args.tensor_parallel_size})."
        )
    backend = args.attention_backend
    if backend and backend.upper() not in BACKENDS:
        raise model.ModelError(
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for AttentionConfig\n"
            f"  Value error, Unknown attention backend: '{backend}'. Valid options are: {', '.join(BACKENDS)}"
        )


def attention_backend(args: argparse.Namespace, config: dict[str, Any]) -> str:
    """The back end that the worker logs: vLLM's server info never tells."""
    if args.attention_backend:
        return str(args.attention_backend).upper()
    if model.is_mla(config):
        return "TRITON_MLA" if float(gpus.facts()["compute_cap"]) >= 12 else "FLASHMLA"
    return "FLASH_ATTN"


def launch(args: argparse.Namespace, version: str, bad: Misbehaviour) -> Launch:
    """Check as the API server does; ModelError for what makes it exit 1 before an engine core starts."""
    path = args.model_tag or args.model
    config = model.read_config(path)
    check_config(args, config)
    draft = speculation(args)
    keys = args.api_key or [key for key in (bad.guard or os.environ.get("VLLM_API_KEY"),) if key]
    length = args.max_model_len if args.max_model_len and args.max_model_len > 0 else model.max_length(config)
    return Launch(
        engine="vllm",
        version=version,
        model_path=path,
        config=config,
        names=list(args.served_model_name or [path]),
        host=args.host or "0.0.0.0",
        port=args.port,
        tensor_parallel=args.tensor_parallel_size,
        ranks=args.tensor_parallel_size * args.pipeline_parallel_size * args.data_parallel_size,
        context=length,
        memory_fraction=args.gpu_memory_utilization,
        attention_backend=bad.attention_backend or attention_backend(args, config),
        dummy_weights=args.load_format == "dummy",
        on_gpu=int(gpus.facts()["count"]) > 0,
        max_running=bad.max_running or args.max_num_seqs or 1024,
        speculation=str(draft.get("method")) if draft else None,
        api_keys=list(keys),
        dev_mode=os.environ.get("VLLM_SERVER_DEV_MODE") == "1",
        tool_parser=args.tool_call_parser if args.enable_auto_tool_choice else None,
        reasoning_parser=args.reasoning_parser or None,
        drain_seconds=float(args.shutdown_timeout or 0),
        args=args,
    )
