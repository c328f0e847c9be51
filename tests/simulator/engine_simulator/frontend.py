"""What the main processes of both engines share: children, timers, signals, orphans."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable

from . import host, shm, titles, web
from .channel import Channel, close_all_but
from .generation import Counters, Generator
from .launch import Launch
from .link import Link
from .misbehaviour import Misbehaviour


def fork(run: Callable[[], None], keep: list[int], title: str) -> int:
    """Run `run` in a child that owns the descriptors `keep`; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        close_all_but(keep)
        titles.set_title(title)
        run()
    except BaseException:  # a child must never run on into its parent's code
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)


def kill(pids: list[int], number: int = signal.SIGKILL) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def later(seconds: float | None, action: Callable[[], None]) -> None:
    """Run `action` in `seconds` from now; nothing for None."""
    if seconds is not None:
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        timer.start()


class Frontend:
    """One main process. `children`: the pids it started."""

    def __init__(self, launch: Launch, bad: Misbehaviour) -> None:
        self.launch = launch
        self.bad = bad
        self.children: list[int] = []
        self.begin = time.monotonic()
        self.terminated = threading.Event()
        self.leaving = threading.Event()
        self.channel: Channel | None = None

    def catch_signals(self) -> None:
        """From now on SIGTERM and SIGINT ask for a clean stop, or do nothing with SIM_IGNORE_SIGTERM."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN if self.bad.ignore_sigterm else self._on_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN if self.bad.ignore_sigterm else self._on_sigterm)

    def start_timers(self) -> None:
        """The SIM_EXIT_AFTER timer; called after the forks, because threads do not survive one."""
        if self.bad.ignore_sigterm:
            self.catch_signals()
        later(self.bad.exit_after, lambda: self.leave(self.bad.exit_code))

    def _on_sigterm(self, signum: int, frame: Any) -> None:
        self.terminated.set()

    def leave(self, code: int) -> None:
        """End the whole tree at once, and only then the main process."""
        self.leaving.set()  # so that nobody takes the deaths that follow for an accident
        kill(self.children)
        for pid in self.children:
            while host.start_time(pid) is not None:  # may be reaped by the thread that watches it
                time.sleep(0.005)
        sys.stdout.flush()
        os._exit(code)

    def not_if_leaving(self) -> None:
        """Called where a child's death would be reported: never returns once the tree is being ended."""
        if self.leaving.is_set():
            threading.Event().wait()

    def make_generator(self, channel: Channel) -> Generator:
        link = Link(channel)
        link.start()
        return Generator(self.launch, self.bad, link, Counters())

    def serve(self, server: web.Server) -> None:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 3600}, daemon=True).start()

    def leave_orphan(self, listening: socket.socket, segments: list[str]) -> None:
        """SIM_ORPHAN: a process that left the tree keeps the port, the segments, or both."""
        kind = self.bad.orphan
        if not kind:
            return
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        close_all_but([listening.fileno()] if kind in ("port", "both") else [])
        titles.set_title("sglang::scheduler_TP0" if self.launch.engine == "sglang" else "VLLM::EngineCore")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if kind in ("shm", "both"):
            for path in segments:
                if pathlib.Path(path).exists():
                    shm.attach(path)
        while True:
            time.sleep(3600)
