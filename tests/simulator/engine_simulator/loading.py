"""Loading of one rank: GPU memory that grows, log lines that tell, and the ways it can fail or stop."""

from __future__ import annotations

import os
import time
from typing import Callable

from . import gpus, logs, model, nccl
from .launch import Launch
from .misbehaviour import Misbehaviour

WEIGHTS_SHARE = 0.75  # of the memory a rank ends up holding; the rest is KV cache and graphs
#: back ends that refuse an MLA model on compute capability 12.x (vllm-project/vllm#57932)
MLA_NOT_ON_12 = ("FLASHMLA", "CUTLASS_MLA", "FLASHINFER_MLA", "FLASH_ATTN_MLA", "FLASHMLA_SPARSE")
CONTEXT_MIB = 650  # a CUDA context with the communicators


class LoadFailure(Exception):
    """The rank cannot come up; the text is the exception the engine logs."""


def stall() -> None:
    """Never return, at no cost."""
    while True:
        time.sleep(3600)


def _free_memory_check(launch: Launch, index: int, target: int) -> None:
    total = int(gpus.facts()["memory_mib"])
    free = total - gpus.used_by_others(index)
    if launch.engine == "vllm" and free < total * launch.memory_fraction:
        raise LoadFailure(
            f"ValueError: Free memory on device cuda:{index} ({free / 1024:.2f}/{total / 1024:.2f} GiB) on startup is "
            f"less than desired GPU memory utilization ({launch.memory_fraction}, "
            f"{total * launch.memory_fraction / 1024:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory "
            "used by other processes."
        )
    if free < target * WEIGHTS_SHARE:
        raise LoadFailure(
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB. GPU {index} has a total capacity "
            f"of {total / 1024:.2f} GiB of which {free / 1024:.2f} GiB is free."
        )
    if free < target:
        raise LoadFailure(
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            f"Current value: mem_fraction_static={launch.memory_fraction}"
        )


def _gpu_of(launch: Launch, rank: int) -> int | None:
    if not launch.on_gpu:
        return None
    usable = gpus.visible(os.environ)
    if rank >= len(usable):
        raise LoadFailure(
            "torch.AcceleratorError: CUDA error: invalid device ordinal" if usable
            else "RuntimeError: No CUDA GPUs are available"
        )  # fmt: skip
    return usable[rank]


def _check_backend(launch: Launch) -> None:
    """vLLM looks at the GPU when a worker builds the model; SGLang fails later, at the first prefill."""
    if launch.engine != "vllm" or not launch.on_gpu or not model.is_mla(launch.config):
        return
    backend = str(launch.args.attention_backend or "").upper()
    if backend in MLA_NOT_ON_12 and float(gpus.facts()["compute_cap"]) >= 12:
        raise LoadFailure(
            f"ValueError: Selected backend AttentionBackendEnum.{backend} is not valid for this configuration. "
            "Reason: ['compute capability not supported']"
        )


def _check_weights(launch: Launch) -> None:
    if launch.dummy_weights:
        return
    files = model.shards(launch.model_path)
    if not files:
        raise LoadFailure(f"RuntimeError: Cannot find any model weights with `{launch.model_path}`")
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise LoadFailure(f"FileNotFoundError: No such file or directory: {missing[0]}")


def load(launch: Launch, bad: Misbehaviour, rank: int, say: Callable[[str], None]) -> None:
    """Come up as rank `rank`. `say` takes log lines and is silent for all ranks but the first.

    Returns when the rank is ready; raises LoadFailure; never returns with SIM_STALL_AT.
    """
    index = _gpu_of(launch, rank)
    target = int(int(gpus.facts()["memory_mib"]) * launch.memory_fraction)

    def hold(mib: int) -> None:
        if index is not None:
            held: dict[int, int] = {index: mib}
            gpus.hold(held, bad.gpu_linger)

    if index is not None:
        _free_memory_check(launch, index, target)
        hold(CONTEXT_MIB)
    log = nccl.start(launch, bad, rank)
    if bad.nccl_hang:
        stall()
    _check_backend(launch)
    _check_weights(launch)
    _load_weights(launch, bad, say, lambda percent: hold(CONTEXT_MIB + int(target * WEIGHTS_SHARE * percent / 100)))
    hold(target)
    time.sleep(bad.load_seconds * 0.1)
    if launch.cuda_graphs:
        sglang = launch.engine == "sglang"
        title = "Capturing batches (bs=1 avail_mem=9.10 GB)" if sglang else "Capturing CUDA graphs (decode, FULL)"
        for done in range(3):
            say(logs.capture(title, done, 2))
            time.sleep(bad.load_seconds * 0.06)
    log.write_until()


def _load_weights(launch: Launch, bad: Misbehaviour, say: Callable[[str], None], grow: Callable[[int], None]) -> None:
    """Ten steps. Dummy weights have no bar in the engines; a stall shows one all the same, to be seen at all."""
    title = "Multi-thread loading shards" if launch.engine == "sglang" else "Loading safetensors checkpoint shards"
    begin = time.monotonic()
    for done in range(11):
        grow(done * 10)
        stalled = bad.stall_at is not None and done * 10 >= bad.stall_at
        if stalled or not launch.dummy_weights:
            say(logs.bar(launch.engine, title, done * 10, done, 10, time.monotonic() - begin))
        if stalled:
            stall()
        time.sleep(bad.load_seconds * 0.065)
