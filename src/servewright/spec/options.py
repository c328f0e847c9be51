"""Typed engine options. A field is the engine's own flag with `_` for `-`; an option that is not here goes to
`extra_args`, which is passed on as it is and checked by the engine's own parser before anything is stopped.

Flags were read in SGLang 0.5.17 and 0.5.23 (`sglang/srt/server_args.py`) and vLLM 0.26.0 and 0.32.0
(`vllm/engine/arg_utils.py`, `vllm/entrypoints`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from servewright.spec.base import Argument, Port, Strict, Text

Fraction = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class SglangOptions(Strict):
    """Options of SGLang's `launch_server`."""

    attention_backend: Text | None = Field(
        None, description="Attention backend. Declared, it is also a gate: the server must report this one."
    )
    moe_runner_backend: Text | None = Field(None, description="Kernel for mixture-of-experts layers.")
    mem_fraction_static: Fraction | None = Field(
        None, description="Fraction of GPU memory for weights and KV cache together."
    )
    max_running_requests: Count | None = Field(None, description="Most requests in one batch.")
    chunked_prefill_size: int | None = Field(None, description="Most tokens of one prefill chunk; -1 turns it off.")
    max_total_tokens: Count | None = Field(None, description="Most tokens in the KV cache.")
    kv_cache_dtype: Text | None = Field(None, description="Type of the KV cache.")
    dtype: Text | None = Field(None, description="Type of weights and activations.")
    quantization: Text | None = Field(None, description="Quantization of the weights; normally read from the model.")
    load_format: Text | None = Field(None, description="How weights are loaded.")
    device: Text | None = Field(None, description="Device to run on; `cpu` for a host without GPUs.")
    nccl_port: Port | None = Field(
        None,
        description="Port of the NCCL rendezvous; without it SGLang takes a random one near its HTTP port.",
    )
    disable_custom_all_reduce: bool = Field(False, description="Use NCCL instead of SGLang's own all-reduce.")
    disable_radix_cache: bool = Field(False, description="Turn the prefix cache off.")
    enable_metrics: bool = Field(True, description="Serve Prometheus metrics on /metrics.")
    trust_remote_code: bool = Field(False, description="Run Python code that comes with the model.")
    tool_call_parser: Text | None = Field(None, description="Parser of tool calls in the model's output.")
    reasoning_parser: Text | None = Field(None, description="Parser of the model's reasoning output.")


class VllmOptions(Strict):
    """Options of `vllm serve`."""

    attention_backend: Text | None = Field(
        None,
        description="Attention backend. Declared, it is also a gate: the engine's log must name this one.",
    )
    gpu_memory_utilization: Fraction | None = Field(None, description="Fraction of GPU memory the engine may use.")
    max_num_seqs: Count | None = Field(None, description="Most requests in one batch.")
    max_num_batched_tokens: Count | None = Field(None, description="Most tokens of one step.")
    kv_cache_dtype: Text | None = Field(None, description="Type of the KV cache.")
    dtype: Text | None = Field(None, description="Type of weights and activations.")
    quantization: Text | None = Field(None, description="Quantization of the weights; normally read from the model.")
    load_format: Text | None = Field(None, description="How weights are loaded.")
    enforce_eager: bool = Field(False, description="Run without CUDA graphs and torch.compile.")
    disable_custom_all_reduce: bool = Field(False, description="Use NCCL instead of vLLM's own all-reduce.")
    trust_remote_code: bool = Field(False, description="Run Python code that comes with the model.")
    enable_auto_tool_choice: bool = Field(False, description="Let the model decide to call tools.")
    tool_call_parser: Text | None = Field(None, description="Parser of tool calls in the model's output.")
    reasoning_parser: Text | None = Field(None, description="Parser of the model's reasoning output.")
    speculative_config: dict[Text, Argument] | None = Field(
        None, description="Speculative decoding, as vLLM's JSON argument."
    )
    shutdown_timeout: int | None = Field(
        None,
        ge=0,
        description="Seconds to finish running requests after SIGTERM; without it streams are cut.",
    )


Engine = Literal["sglang", "vllm"]
OPTIONS: dict[str, type[Strict]] = {"sglang": SglangOptions, "vllm": VllmOptions}
