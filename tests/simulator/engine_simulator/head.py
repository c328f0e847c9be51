"""The process that drives the ranks: vLLM's engine core, SGLang's first scheduler.

It starts the workers, reports once all are ready, and answers the main process's round trips by asking every
rank, so a frozen or dead rank freezes the engine as it does in reality.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from typing import Any

from . import loading, logs, shm, worker
from .channel import Channel, Lifeline
from .launch import Launch
from .misbehaviour import Misbehaviour

SHAPE_ERROR = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8192x7168 and 14336x7168)"
ORPHAN_SECONDS = 300.0  # a vLLM engine core outlives a killed API server by minutes


class Head:
    """State of the head process; `parent` is its channel to the main process."""

    def __init__(self, parent: Channel, launch: Launch, bad: Misbehaviour) -> None:
        self.parent = parent
        self.launch = launch
        self.bad = bad
        self.ranks: list[Channel] = []
        self.pids: list[int] = []
        self.segments: list[str] = []
        self.lifeline = Lifeline()

    def core_log(self, text: str, level: str = "INFO", place: str = "core.py:402") -> None:
        if not self.bad.silent_load or level == "ERROR":
            logs.vllm("EngineCore", text, place, level)

    def stop(self, signum: int = 0, frame: Any = None) -> None:
        """A clean stop: vLLM takes its segments and workers along."""
        for pid in self.pids:
            _signal(pid, signal.SIGTERM)
        deadline = time.monotonic() + 1
        for pid in self.pids:
            _reap(pid, deadline)
        shm.remove(self.segments)
        os._exit(0)

    def die(self, code: int = 1) -> None:
        """End without cleaning up, as after an unexpected failure."""
        for pid in self.pids:
            _signal(pid, signal.SIGKILL)
        if self.launch.engine == "vllm":
            shm.remove(self.segments)  # the resource tracker of the real engine does this
        os._exit(code)

    def start_ranks(self, first: int, titles: list[str]) -> None:
        for rank in range(first, self.launch.ranks):
            mine, theirs = Channel.pair()
            self.ranks.append(mine)
            life = self.lifeline.reader
            pid = worker.spawn(theirs, life, self.launch, self.bad, rank, self.segments[:4], titles[rank])
            self.pids.append(pid)
            theirs.end.close()

    def wait_until_loaded(self) -> str | None:
        """None once every rank is ready, else the failure of the first that failed or died."""
        waiting = list(self.ranks)
        while waiting:
            readable, _, _ = select.select(waiting, [], [])
            for channel in readable:
                message = channel.receive()
                if message is None:
                    return "RuntimeError: A worker process died while the model was loading"
                if "failed" in message:
                    return str(message["failed"])
                waiting.remove(channel)
        return None

    def serve(self) -> None:
        """Answer round trips until the parent or a rank is gone."""
        orphan_until: float | None = None
        while True:
            sources: list[Channel] = list(self.ranks) + ([self.parent] if orphan_until is None else [])
            patience = None if orphan_until is None else max(0.0, orphan_until - time.monotonic())
            readable, _, _ = select.select(sources, [], [], patience)
            if not readable and orphan_until is not None:
                self.die()
            for channel in readable:
                message = channel.receive()
                if channel is self.parent and message is None:
                    orphan_until = time.monotonic() + ORPHAN_SECONDS * self.bad.life_scale
                elif message is None:
                    self.rank_died()
                elif "ping" in message:
                    self.round_trip(message["ping"])
                elif "fatal" in message:
                    self.fatal(str(message["fatal"]))

    def round_trip(self, number: int) -> None:
        for channel in self.ranks:
            channel.send(ping=number)
        for channel in self.ranks:
            if channel.receive() is None:
                self.rank_died()
        self.parent.send(pong=number)

    def rank_died(self) -> None:
        if self.launch.engine == "sglang":
            return  # the main process sees its dead child itself
        self.core_log(
            "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.",
            "ERROR",
            "multiproc_executor.py:316",
        )
        self.core_log("EngineCore encountered a fatal error.", "ERROR", "core.py:1520")
        self.core_log("vllm.v1.engine.exceptions.EngineDeadError", "ERROR", "core.py:1520")
        self.die()

    def fatal(self, text: str) -> None:
        """Die with a traceback, as a kernel that does not fit the GPU makes it."""
        for line in traceback_lines(self.launch, text):
            if self.launch.engine == "sglang":
                logs.sglang(line, "TP0" if self.launch.tensor_parallel > 1 else "")
            else:
                self.core_log(line, "ERROR", "core.py:1520")
        self.die()


def traceback_lines(launch: Launch, text: str) -> list[str]:
    if launch.engine == "sglang":
        body = (
            "Scheduler hit an exception: Traceback (most recent call last):\n"
            '  File "sglang/srt/managers/scheduler.py", line 3000, in run_scheduler_process\n'
            "    scheduler.event_loop_overlap()\n"
        )
        return [body + text + "\n"]
    return [
        "EngineCore encountered a fatal error.",
        "Traceback (most recent call last):",
        '  File "vllm/v1/engine/core.py", line 1120, in run_engine_core',
        "    engine_core.run_busy_loop()",
        text,
    ]


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _reap(pid: int, deadline: float) -> None:
    """Wait for a child until `deadline` (monotonic), then kill it."""
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        if time.monotonic() > deadline:
            _signal(pid, signal.SIGKILL)
            deadline = float("inf")
        time.sleep(0.01)


def run_engine_core(parent: Channel, launch: Launch, bad: Misbehaviour) -> None:
    """vLLM's engine core; never returns."""
    head = Head(parent, launch, bad)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if bad.ignore_sigterm else head.stop)
    head.core_log(
        f"Initializing a V1 LLM engine (v{launch.version}) with config: model='{launch.model_path}', "
        f"speculative_config={launch.speculation}, max_seq_len={launch.context}, "
        f"tensor_parallel_size={launch.tensor_parallel}, served_model_name={launch.names[0]}",
        place="core.py:133",
    )
    head.segments = shm.vllm_segments(bad.shm_folder, launch.ranks, launch.on_gpu)
    head.start_ranks(0, [f"VLLM::{worker.worker_name(launch, rank)}" for rank in range(launch.ranks)])
    die_on_time(head)
    failure = head.wait_until_loaded()
    if failure:
        for line in traceback_lines(launch, failure):
            head.core_log(line.replace("encountered a fatal error", "failed to start"), "ERROR", "core.py:1510")
        parent.send(failed=failure)
        head.die()
    head.core_log(backend_line(launch), place="cuda.py:507")
    tokens = kv_tokens(launch)
    head.core_log(
        f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {launch.context:,} tokens per request: "
        f"{tokens / launch.context:.2f}x",
        place="kv_cache_utils.py:2327",
    )
    head.core_log(f"init engine (profile, create kv cache, warmup model) took {bad.load_seconds:.2f} s")
    parent.send(ready=True, tokens=tokens, segments=head.segments)
    head.serve()


def backend_line(launch: Launch) -> str:
    """How vLLM says which attention back end it uses: only the log tells."""
    name = launch.attention_backend
    if launch.args.attention_backend:
        return f"Using {name} backend."
    return f"Using {name} attention backend out of potential backends: ['{name}']."


def die_on_time(head: Head) -> None:
    """SIM_DIE_AFTER: an error, of shapes without SIM_DIE_SAYING, that many seconds after the process's start."""
    if head.bad.die_after is not None:
        timer = threading.Timer(head.bad.die_after, head.fatal, [head.bad.die_saying or SHAPE_ERROR])
        timer.daemon = True
        timer.start()


def kv_tokens(launch: Launch) -> int:
    """Tokens the KV cache holds: plausible, and at least two full contexts."""
    wanted = getattr(launch.args, "max_total_tokens", None)
    return int(wanted or max(2 * launch.context, 786432))


def run_scheduler(
    parent: Channel, launch: Launch, bad: Misbehaviour, rank: int, others: list[Channel], to_first: Channel | None
) -> None:
    """An SGLang scheduler; the first also asks the `others`, the rest answer on `to_first`. Never returns."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN if bad.ignore_sigterm else signal.SIG_DFL)
    head = Head(parent, launch, bad)
    if rank == 0:
        die_on_time(head)
    say = worker.say_for(launch, bad, rank)
    say("Init torch distributed begin.")
    paths = shm.sglang_segments(bad.shm_folder, launch.ranks, launch.on_gpu) if rank == 0 else []
    kept = [shm.sglang_loads(bad.shm_folder), *paths[:1]] if rank == 0 else []
    try:
        if rank == 0:
            if not getattr(launch.args, "attention_backend", None):
                say(f"Attention backend not specified. Use {launch.attention_backend} backend by default.")
            say("Load weight begin. avail mem=94.20 GB")
        loading.load(launch, bad, rank, say)
    except loading.LoadFailure as failure:
        for line in traceback_lines(launch, str(failure)):
            logs.sglang(line, f"TP{rank}" if launch.tensor_parallel > 1 else "")
        parent.send(failed=str(failure))
        os._exit(1)
    if to_first is not None:
        to_first.send(ready=True, rank=rank)
        while to_first.receive() is not None:
            to_first.send(pong=True)
        threading.Event().wait()  # the first scheduler is gone; the launcher will end this one
    head.ranks = others
    head.segments = paths
    head.wait_until_loaded()
    tokens = kv_tokens(launch)
    say(f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, KV size: 20.10 GB")
    say(
        f"max_total_num_tokens={tokens}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        f"max_running_requests={launch.max_running}, context_len={launch.context}, available_gpu_mem=9.10 GB"
    )
    parent.send(ready=True, tokens=tokens, segments=kept + paths[1:], temporary=paths[1:])
    head.serve()
