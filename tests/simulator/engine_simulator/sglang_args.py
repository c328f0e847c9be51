"""SGLang's command line: parsing, the checks made before a scheduler starts, resolved defaults."""

from __future__ import annotations

import argparse
import os
from typing import Any

from . import flags, gpus, model
from .launch import Launch
from .misbehaviour import Misbehaviour

#: max_running_requests that SGLang picks with speculation and no flag (sgl-project/sglang#34290)
SPECULATIVE_MAX_RUNNING = 48


def make_parser(version: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang serve")
    flags.add_flags(parser, "sglang", version)
    return parser


class ServerArgs(argparse.Namespace):
    """What prepare_server_args() returns: the raw flags, checked deeper on request as the real one."""

    def resolve_once(self) -> None:
        """Read the model folder; ValueError or OSError for what the real resolution refuses."""
        config = model.read_config(self.model_path)
        check_context(self, config)

    def check_server_args(self) -> None:
        config = model.read_config(self.model_path)
        check_parallel(self, config)

    def resolved_dict(self) -> dict[str, Any]:
        config = model.read_config(self.model_path)
        values = {k: v for k, v in vars(self).items() if not k.startswith("_")}
        values["attention_backend"] = attention_backend(self, config)
        return values


def prepare_server_args(argv: list[str], version: str) -> ServerArgs:
    args = make_parser(version).parse_args(argv, namespace=ServerArgs())
    args._launch_command = " ".join(argv)
    return args


def check_context(args: argparse.Namespace, config: dict[str, Any]) -> None:
    longest = model.max_length(config)
    allowed = os.environ.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "").lower() in ("1", "true")
    if args.context_length and args.context_length > longest and not allowed:
        raise model.ModelError(
            f"ValueError: Warning: User-specified context_length ({args.context_length}) is greater than the "
            f"derived context_length ({longest}). This may lead to incorrect model outputs or CUDA errors. Note "
            "that the derived context_length may differ from max_position_embeddings in the model's config. To "
            "allow overriding this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1"
        )


def check_parallel(args: argparse.Namespace, config: dict[str, Any]) -> None:
    heads = model.attention_heads(config)
    if heads % args.tp_size:
        raise model.ModelError(f"AssertionError: num_heads {heads} must be divisible by tp_size {args.tp_size}")


def attention_backend(args: argparse.Namespace, config: dict[str, Any]) -> str:
    """The back end in force: the flag, else SGLang's choice for this GPU and model."""
    if args.attention_backend:
        return str(args.attention_backend)
    if args.device == "cpu":
        return "torch_native"
    capability = float(gpus.facts()["compute_cap"])
    if model.is_mla(config) and capability >= 12:
        return "triton"
    if capability >= 10:
        return "trtllm_mla" if model.is_mla(config) else "trtllm_mha"
    return "fa3" if capability >= 9 else "flashinfer"


def launch(args: ServerArgs, version: str, bad: Misbehaviour) -> Launch:
    """Check as the launcher process does; ModelError for what makes it exit 1 before a scheduler starts."""
    config = model.read_config(args.model_path)
    check_context(args, config)
    check_parallel(args, config)
    default_running = SPECULATIVE_MAX_RUNNING if args.speculative_algorithm else 2048
    return Launch(
        engine="sglang",
        version=version,
        model_path=args.model_path,
        config=config,
        names=[args.served_model_name or args.model_path],
        host=args.host,
        port=args.port,
        tensor_parallel=args.tp_size,
        ranks=args.tp_size * args.pp_size * args.dp_size,
        context=args.context_length or model.max_length(config),
        memory_fraction=args.mem_fraction_static or 0.85,
        attention_backend=bad.attention_backend or attention_backend(args, config),
        dummy_weights=args.load_format == "dummy",
        on_gpu=args.device != "cpu",
        max_running=bad.max_running or args.max_running_requests or default_running,
        speculation=args.speculative_algorithm,
        api_keys=[key for key in (bad.guard or args.api_key,) if key],
        dev_mode=False,
        tool_parser=args.tool_call_parser,
        reasoning_parser=args.reasoning_parser,
        drain_seconds=None,
        args=args,
    )
