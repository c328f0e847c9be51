"""The processes of a host, seen from this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from tests.testbed.errors import TestbedError

PROC = Path("/proc")


def container_of(root: Path) -> int | None:
    """The process id of the systemd-nspawn that runs the host with this root folder, whoever started it.

    It is known by its command line, which names a folder that no other run ever has: a number kept in a file
    could by now belong to another process.
    """
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            argv = _read(folder / "cmdline").split("\0")
            if Path(argv[0]).name == "systemd-nspawn" and f"--directory={root}" in argv:
                return int(folder.name)
    return None


def init_of(container: int) -> int | None:
    """The process id, on this machine, of the PID 1 that systemd-nspawn runs; None before it is there."""
    for child in _read(PROC / f"{container}/task/{container}/children").split():
        for line in _read(PROC / child / "status").splitlines():
            # one number for each process id namespace that the process is in
            if line.startswith("NSpid:") and len(line.split()) > 2 and line.split()[-1] == "1":
                return int(child)
    return None


def is_alive(pid: int) -> bool:
    """Whether the process exists and has not ended; one that ended may wait long for its parent to notice."""
    state = _read(PROC / f"{pid}/stat").rpartition(")")[2].split()
    return bool(state) and state[0] not in "ZX"


def kill_container(container: int, patience: float = 10.0) -> None:
    """End a host at once, like a power cut: the kernel ends all processes of a PID 1 that is killed."""
    init = init_of(container)
    if init is not None:
        _kill(init)
        # systemd-nspawn tidies up after itself when it is let
        if _ends_within(container, patience / 2):
            return
    _kill(container)
    if not _ends_within(container, patience / 2):
        raise TestbedError(f"systemd-nspawn, process {container}, does not end although it was killed")


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def inside(init: int, argv: Sequence[str]) -> list[str]:
    """The command line that runs argv in the host whose PID 1 is init, with a clean environment."""
    return [
        *(
            "nsenter",
            "--target",
            str(init),
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--cgroup",
            "--root",
            "--wd",
        ),
        *("--", "/usr/bin/env", "-i", "HOME=/root", "USER=root", "LANG=C.UTF-8"),
        *("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *argv),
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
