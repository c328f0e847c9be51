"""A rank of the engine: loads, then answers the round trips of the head process until told to stop.

Runs in a forked child, or after SIM_CHILD_ENV_DROP as a program of its own:
    python -m engine_simulator.worker CHANNEL PIPE LIFELINE   (descriptors; the pipe carries the pickled rest)
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from typing import Any

from . import gpus, loading, logs, shm, titles
from .channel import Channel, Lifeline, close_all_but
from .launch import Launch
from .misbehaviour import Misbehaviour

WORKER_FAILED = (
    "Exception: WorkerProc initialization failed due to an exception in a background process. "
    "See stack trace for root cause."
)


def _stop(signum: int, frame: Any) -> None:
    leave(0)


def leave(code: int) -> None:
    if not os.environ.get("SIM_GPU_LINGER"):
        gpus.release()
    os._exit(code)


def say_for(launch: Launch, bad: Misbehaviour, rank: int) -> Any:
    """The log function of a rank: only rank 0 reports progress, and nobody with SIM_SILENT_LOAD."""

    def say(text: str) -> None:
        if bad.silent_load or rank != 0:
            return
        if text.startswith("\r"):
            logs.text(text)
        elif launch.engine == "sglang":
            logs.sglang(text, f"TP{rank}" if launch.tensor_parallel > 1 else "")
        else:
            logs.vllm(worker_name(launch, rank), text, "gpu_model_runner.py:4200")

    return say


def worker_name(launch: Launch, rank: int) -> str:
    return f"Worker_TP{rank}" if launch.tensor_parallel > 1 else "Worker"


def run(channel: Channel, launch: Launch, bad: Misbehaviour, rank: int, segments: Any) -> None:
    """Load, report, and serve round trips. Exits when the head process is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN if bad.ignore_sigterm else _stop)
    try:
        for path in segments:
            shm.attach(path)
        loading.load(launch, bad, rank, say_for(launch, bad, rank))
    except (loading.LoadFailure, FileNotFoundError) as failure:
        text = str(failure) if isinstance(failure, loading.LoadFailure) else f"FileNotFoundError: {failure}"
        lines = f"WorkerProc failed to start.\nTraceback (most recent call last):\n{text}"
        logs.vllm(worker_name(launch, rank), lines, "multiproc_executor.py:953", "ERROR")
        channel.send(failed=WORKER_FAILED, rank=rank)
        channel.receive()
        leave(1)
    channel.send(ready=True, rank=rank)
    while True:
        message = channel.receive()
        if message is None:
            leave(0)
        channel.send(pong=True)


def spawn(channel: Channel, life: int, launch: Launch, bad: Misbehaviour, rank: int, segments: Any, title: str) -> int:
    """Fork a rank that owns `channel` and hangs on the lifeline `life`; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        close_all_but([channel.fileno(), life])
        if bad.child_env_drop:
            dropped = {k: v for k, v in os.environ.items() if not k.startswith(bad.child_env_drop)}
            blob = pickle.dumps((launch, bad, rank, list(segments), title))
            reader, writer = os.pipe()
            os.set_inheritable(channel.fileno(), True)
            os.set_inheritable(reader, True)
            os.set_inheritable(life, True)
            if os.fork() == 0:  # feeds the pipe, which may be shorter than the pickle
                with os.fdopen(writer, "wb") as pipe:
                    pipe.write(blob)
                os._exit(0)
            argv = [sys.executable, "-m", "engine_simulator.worker", str(channel.fileno()), str(reader), str(life)]
            os.close(writer)
            os.execve(sys.executable, argv, dropped)
        titles.set_title(title)
        Lifeline.hang_on(life)
        run(channel, launch, bad, rank, segments)
    finally:
        os._exit(1)


def main() -> None:
    channel = Channel.from_fd(int(sys.argv[1]))
    with os.fdopen(int(sys.argv[2]), "rb") as pipe:
        launch, bad, rank, segments, title = pickle.loads(pipe.read())
    titles.set_title(title)
    Lifeline.hang_on(int(sys.argv[3]))
    run(channel, launch, bad, rank, segments)


if __name__ == "__main__":
    main()
