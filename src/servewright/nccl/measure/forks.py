"""Ranks as forks of a process that has imported torch and never touches a GPU: followed, timed and ended."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

NEEDS_EXEC = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables that act on a program when it starts, so that setting them in a fork does nothing."""
GRACE = 10.0
"""Seconds that a rank gets to end."""


class Pipe:
    """What a rank tells the probe: one JSON object a line, written at once, so that a killed rank was heard."""

    def __init__(self, descriptor: int, turn: int) -> None:
        self.descriptor, self.turn = descriptor, turn

    def wait(self) -> None:
        """Until the probe says to go on."""
        if not os.read(self.turn, 1):
            raise RuntimeError("the probe ended")

    def tell(self, **message: Any) -> None:
        data = memoryview((json.dumps(message) + "\n").encode())
        while data:
            data = data[os.write(self.descriptor, data) :]


def fork(work: Callable[[Pipe], None], environment: dict[str, str], log: Path) -> Followed:
    """Run work(pipe) in a fork with its own session."""
    reading, writing = os.pipe()
    turn, giving = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        os.close(reading)
        os.close(giving)
        _in_fork(work, environment, log, Pipe(writing, turn), parent)
    os.close(writing)
    os.close(turn)
    return Followed(pid, reading, giving)


def _in_fork(
    work: Callable[[Pipe], None], environment: dict[str, str], log: Path, pipe: Pipe, parent: int
) -> NoReturn:
    status = 1
    try:
        os.setsid()
        # Ranks must not outlive a probe that was killed: they hold the GPUs.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.environ.clear()
        os.environ.update(environment)
        writing = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for descriptor, opened in ((0, os.open(os.devnull, os.O_RDONLY)), (1, writing), (2, writing)):
            os.dup2(opened, descriptor)
        try:
            work(pipe)
            status = 0
        except BaseException as error:
            pipe.tell(error=f"{type(error).__name__}: {error}")
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        # Neither Python's nor CUDA's shutdown: after a graph capture it can hang.
        os._exit(status)


class Followed:
    """A fork and what it has told so far."""

    def __init__(self, pid: int, reading: int, giving: int) -> None:
        self.pid, self.reading, self.giving = pid, reading, giving
        self.open = True
        self.messages: list[dict[str, Any]] = []
        self.rest = b""
        self.status: int | None = None

    def read(self) -> bool:
        """False at the end of the pipe."""
        data = os.read(self.reading, 1 << 16)
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.messages += [json.loads(line) for line in lines]
        self.open = bool(data)
        return self.open

    def last(self, key: str, default: Any = None) -> Any:
        return next((message[key] for message in reversed(self.messages) if key in message), default)

    def ended_by(self) -> str | None:
        """The signal that ended it, by name."""
        if self.status is None or not os.WIFSIGNALED(self.status):
            return None
        return signal.Signals(os.WTERMSIG(self.status)).name


class Start:
    """The ranks of one case."""

    def __init__(self, forks: list[Followed]) -> None:
        self.forks = forks
        self.late: list[int] = []
        self.stuck: list[int] = []

    def said(self, word: str) -> bool:
        return all(one.last(word, False) for one in self.forks)

    def go_on(self) -> None:
        """Let ranks that wait go on."""
        for one in self.forks:
            with contextlib.suppress(BrokenPipeError):
                os.write(one.giving, b".")

    def kill(self) -> None:
        """End what has not ended by itself, and remember it as late."""
        self.late = [one.pid for one in self.forks if one.open]
        for pid in self.late:
            with contextlib.suppress(ProcessLookupError):  # not yet the leader of its own group
                os.killpg(pid, signal.SIGKILL)

    def reap(self) -> None:
        """Wait for every rank that ended or is about to; one that even SIGKILL does not end is stuck."""
        deadline = time.monotonic() + GRACE
        for one in self.forks:
            while one.status is None:
                pid, status = os.waitpid(one.pid, os.WNOHANG)
                if pid:
                    one.status = status
                elif time.monotonic() > deadline:
                    self.stuck.append(one.pid)
                    break
                else:
                    time.sleep(0.01)
            os.close(one.reading)
            os.close(one.giving)


def hear(starts: list[Start], word: str, limit: float) -> None:
    """Until every rank has said the word, or never will: its time is over, or it ended.

    One that ends without the word dooms the others of its start, which wait for it: they get a short grace.
    """
    deadlines = {id(start): time.monotonic() + limit for start in starts}
    with selectors.DefaultSelector() as selector:
        for start in starts:
            for one in start.forks:
                if one.open and not one.last(word, False):
                    selector.register(one.reading, selectors.EVENT_READ, (start, one))
        while selector.get_map():
            now = time.monotonic()
            waiting = [key.data for key in selector.get_map().values()]
            for start, one in waiting:
                if now >= deadlines[id(start)]:
                    selector.unregister(one.reading)
            if not selector.get_map():
                return
            left = min(deadlines[id(key.data[0])] for key in selector.get_map().values()) - now
            for key, _ in selector.select(max(0.0, min(1.0, left))):
                start, one = key.data
                if not one.read():
                    selector.unregister(one.reading)
                    if not one.last(word, False):
                        deadlines[id(start)] = min(deadlines[id(start)], time.monotonic() + 3)
                elif one.last(word, False):
                    selector.unregister(one.reading)
