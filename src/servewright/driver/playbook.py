"""Runs one playbook in the background and hands out its events and progress as they come."""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from servewright.driver.private import private_folder
from servewright.driver.progress import VARIABLE, Progress, Tail

TICK = 0.2
"""Seconds between two looks at the progress and, in ansible-runner, at whether to stop."""
PATIENCE = 5.0
"""Seconds that Ansible has to end its workers before it is killed."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Event = dict[str, Any]
"""An event of ansible-runner: `event` names it, `event_data` holds it, `stdout` is what Ansible printed."""


@dataclass(frozen=True)
class Job:
    """What to run. `answers` are passwords by the regular expression of the prompt that asks for them."""

    arguments: list[str]
    """Arguments of ansible-playbook, the playbook last."""
    answers: dict[str, str] = field(default_factory=dict, repr=False)
    keep_artifacts: bool = False


class Playbook:
    """A run of ansible-playbook, as a context manager; iterate it for batches, one a tick, possibly empty.

    Each batch is a list of events and progress in the order they came. After the last batch `rc` is the exit
    status of ansible-playbook, `failure` says why ansible-runner could not run it, and `interrupted` is the number of
    the signal that stopped it. The first SIGINT, SIGTERM or SIGHUP stops Ansible; the next has its usual effect.
    """

    def __init__(self, job: Job):
        self.rc = 0
        self.failure = ""
        self.interrupted = 0
        self._job = job
        # A signal that is ignored stays so: nohup means that a closed terminal must not end anything.
        self._signals = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        # Not a SimpleQueue: its get() never returns when a signal handler runs past the timeout (before Python 3.13).
        self._queue: queue.Queue[Event] = queue.Queue()
        self._kill = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._deadline = float("inf")
        self._cleanup = ExitStack()

    def __enter__(self) -> Playbook:
        with ExitStack() as stack:
            self._folder = stack.enter_context(private_folder(self._job.keep_artifacts))
            self._tail = Tail(self._folder / "progress.jsonl")
            stack.callback(self._tail.close)
            for number in self._signals:
                stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
            stack.callback(self._stop)
            self._thread.start()
            self._cleanup = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def __iter__(self) -> Iterator[list[Event | Progress]]:
        alive = True
        while alive:
            alive = self._thread.is_alive()
            if time.monotonic() > self._deadline:
                self._kill.set()
            events = self._events(TICK if alive else 0)
            # A service's progress was written before its result, so it goes first.
            yield [*self._tail.read(), *events]

    def _events(self, timeout: float) -> list[Event]:
        events: list[Event] = []
        with suppress(queue.Empty):
            events.append(self._queue.get(timeout=timeout))
            while True:
                events.append(self._queue.get_nowait())
        return events

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.interrupted = number
        for other in self._signals:
            signal.signal(other, signal.default_int_handler if other == signal.SIGINT else signal.SIG_DFL)
        self._deadline = time.monotonic() + PATIENCE
        self._terminate()

    def _terminate(self) -> None:
        """Ask Ansible to stop, which ends its workers; killing it at once would leave them running."""
        try:
            os.kill(int((self._folder / "pid").read_text(encoding="ascii")), signal.SIGTERM)
        except (OSError, ValueError):
            self._kill.set()  # it has not begun, or is over

    def _stop(self) -> None:
        if self._thread.is_alive():
            self._terminate()
            self._thread.join(PATIENCE)
        self._kill.set()
        self._thread.join(PATIENCE)

    def _work(self) -> None:
        import ansible_runner

        # In a file, because ansible-runner drops the argument of this name where there is no such file.
        settings = {"pexpect_timeout": TICK, "suppress_output_file": True}
        (self._folder / "env").mkdir()
        (self._folder / "env" / "settings").write_text(json.dumps(settings), encoding="utf-8")
        child = ["-P", "-m", "servewright.driver.child", str(self._folder / "pid"), *self._job.arguments]
        try:
            self.rc = ansible_runner.run(
                private_data_dir=str(self._folder),
                project_dir=str(Path.cwd()),  # where Ansible looks for ansible.cfg
                binary=sys.executable,
                cmdline=shlex.join(child),
                envvars=_environment(self._folder),
                passwords=self._job.answers,
                ident="run",
                fact_cache_type="",  # leave the user's choice alone
                suppress_env_files=True,
                quiet=True,
                event_handler=self._on_event,
                cancel_callback=self._kill.is_set,
            ).rc
        except Exception as error:  # of any kind: it would end this thread, and nobody would hear of it
            self.failure = f"ansible-runner failed: {type(error).__name__}: {error}"

    def _on_event(self, event: Event) -> bool:
        """Take an event; the answer says whether ansible-runner stores it in the artifacts."""
        self._queue.put(event)
        return self._job.keep_artifacts


def _environment(folder: Path) -> dict[str, str]:
    """What is added to the environment of Ansible."""
    return {
        VARIABLE: str(folder / "progress.jsonl"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),  # gone with the folder even when Ansible is killed
        "ANSIBLE_STDOUT_CALLBACK": "",  # ansible-runner has its own, and would otherwise build on the user's
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_HOST_KEY_CHECKING": os.environ.get("ANSIBLE_HOST_KEY_CHECKING", ""),
        "MAX_EVENT_RES": str(64 * 2**20),  # a larger result is dropped, and the default is less than a log may have
    }
