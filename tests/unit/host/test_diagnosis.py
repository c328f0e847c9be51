"""Lines that engines really logged, and the cause that they show."""

from __future__ import annotations

import re

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import diagnosis
from ansible_collections.servewright.llm.plugins.module_utils.host.causes import CAUSES

EXIT = {"ExecMainCode": 1, "ExecMainStatus": 1, "InvocationID": "i"}
# (cause, engine, whether a retry can help, lines as they stand in reports or were seen)
LOGS = [
    ("driver_mismatch", "sglang", False, ["Failed to initialize NVML: Driver/library version mismatch"]),
    ("shm_full", "sglang", False, ["Subprocess scheduler_0 (pid=7) crashed with exit code -7. Triggering SIGQUIT"]),
    ("shm_full", "vllm", False, ["NCCL WARN Call to posix_fallocate failed : No such file or directory"]),
    ("shm_removed", "sglang", False, ["NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-A (2)"]),
    ("unknown_argument", "vllm", False, ["vllm: error: unrecognized arguments: --disable-log-requests"]),
    ("compiler_missing", "vllm", False, ["FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"]),
    ("compiler_missing", "vllm", False, ["RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda'"]),
    ("python_headers", "sglang", False, ["main.c:5:10: fatal error: Python.h: No such file or directory"]),
    ("cache_permission", "vllm", False, ["PermissionError: [Errno 13] Permission denied: '/.cache'"]),
    ("offline", "vllm", False, ["LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder"]),
    ("graph_capture_memory", "sglang", False, ["Exception: Capture cuda graph failed: CUDA out of memory. Tried to"]),
    (
        "kv_cache_small",
        "vllm",
        False,
        [
            "(EngineCore pid=9) ERROR 11-30 [core.py:1510] EngineCore failed to start.",
            "(EngineCore pid=9) ERROR 11-30 [core.py:1510] ValueError: To serve at least one request with the model's "
            "max seq len (131072), (4.54 GiB KV cache is needed, which is larger than the available KV cache memory (1",
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        ],
    ),
    ("gpu_memory_taken", "vllm", True, ["ValueError: Free memory on device cuda:0 (9.1/95.6 GiB) on startup is less "
                                        "than desired GPU memory utilization (0.9, 86.04 GiB)."]),
    ("rendezvous_port", "sglang", True, ["port: 30111, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
                                         "already in use"]),
    ("port", "vllm", False, ["OSError: [Errno 98] Address already in use"]),
    ("nccl_no_algorithm", "sglang", False, ["ncclInvalidUsage: no algorithm/protocol available for function Reduce"]),
    ("custom_all_reduce", "vllm", False, ["RuntimeError: custom_all_reduce.cuh:455 'invalid argument'"]),
    ("shapes", "vllm", False, ["RuntimeError: mat1 and mat2 shapes cannot be multiplied (8192x7168 and 14336x7168)"]),
    ("attention_kernels_missing", "sglang", False,
     ["ImportError: Can not import FA3 in sgl_kernel. Please check your installation."]),
    ("no_space", "sglang", False, ["OSError: [Errno 28] No space left on device: '/var/cache/servewright/kimi'"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "engine", "retry", "lines"), LOGS, ids=[f"{row[0]}-{row[1]}" for row in LOGS])
def test_a_log_shows_its_cause(name, engine, retry, lines):
    noise = ['[2026-11-30 02:49:55] INFO:     127.0.0.1:41176 - "GET /health HTTP/1.1" 200 OK'] * 40
    found = diagnosis.of({"engine": engine}, EXIT, ["Load weight begin.", *lines, *noise])
    assert (found["id"], found["retry"]) == (name, retry)
    assert found["change"]
    shown = diagnosis.relevant([*lines, *noise], found)
    assert found["line"] in shown
    assert not any("GET /health" in line for line in shown)


@pytest.mark.failure("4.1")
def test_4_1_a_kernel_that_refuses_the_gpu_is_told_as_the_attention_backend():
    line = "RuntimeError: Error in function 'TllmGenFmhaRunner' at fmhaRunner.cuh:37: Unsupported architecture"
    found = diagnosis.of({"engine": "sglang"}, EXIT, [line])
    assert (found["id"], found["retry"]) == ("attention_backend_unfit", False)
    assert "options.attention_backend" in diagnosis.text(found)


@pytest.mark.failure("5.6")
def test_5_6_memory_that_only_the_draft_model_lacks_is_told_and_not_tried_again():
    found = diagnosis.of(
        {"engine": "sglang"}, EXIT, ["torch.OutOfMemoryError: CUDA out of memory. in eagle_worker.py init_draft"]
    )
    assert (found["id"], found["retry"]) == ("speculation_memory", False)


def test_a_bus_error_of_the_main_process_needs_no_line():
    assert diagnosis.of({"engine": "vllm"}, {**EXIT, "ExecMainCode": 2, "ExecMainStatus": 7}, [])["id"] == "shm_full"


def test_an_unknown_cause_is_the_last_exception_that_is_not_only_a_consequence():
    lines = ["Traceback (most recent call last):", "KeyError: 'rope_scaling'",
             "RuntimeError: Engine core initialization failed. See root cause above."]  # fmt: skip
    found = diagnosis.of({"engine": "vllm"}, EXIT, lines)
    assert found["what"] == "the engine said: KeyError: 'rope_scaling'"
    assert diagnosis.of({"engine": "vllm"}, EXIT, ["Loading"]) is None


def test_the_lines_that_matter_leave_out_requests_progress_and_what_every_rank_repeats():
    lines = [
        "Loading safetensors checkpoint shards:  50% Completed | 5/10 [00:01<00:00,  1.00it/s]",
        '127.0.0.1 - "GET /health HTTP/1.1" 503',
        *[f"[2026-11-30 02:49:5{rank} TP{rank}] Scheduler hit an exception: KeyError" for rank in range(8)],
        "  ^^^^^",
    ]
    assert diagnosis.relevant(lines) == ["[2026-11-30 02:49:50 TP0] Scheduler hit an exception: KeyError"]


def test_every_cause_has_a_source_and_a_name_of_its_own():
    assert len({cause.name for cause in CAUSES}) == len(CAUSES)
    assert all(cause.source and cause.what and cause.change for cause in CAUSES)
    healthy = (
        "Load weight end. KV Cache is allocated. dtype: torch.bfloat16. HF_HUB_OFFLINE=1. Using FLASHINFER backend."
    )
    assert not [cause.name for cause in CAUSES if re.search(cause.pattern, healthy)]
