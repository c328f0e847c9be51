"""Processes that a service left behind: ended when they are provably its own, else only named.

The proof is the kernel's record of where a process belongs, never its name or the GPU it sits on: it is in the control
group of the service's unit; or it is in no other unit's and in no container, runs as the service's user, and the
environment that it was started with names this service or a start of its unit that the host's log knows.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import select
import signal
import time

from . import paths, proc, systemd
from .errors import HostError

GRACE_SECONDS = 3  # from SIGTERM to SIGKILL; the service is down meanwhile, and its main process had its time
KILL_SECONDS = 5  # what the kernel may take to end a process that was killed


def strays(service, user):
    """Processes outside of the service's unit that are provably its own: a mapping of pid to the proof, in words."""
    return {pid: proof for pid, proof in _proven(service, user).items() if proc.unit(pid) != paths.unit_name(service)}


def end(service, user, report=print):
    """End what the service left behind. Gives the pids that outlived SIGKILL.

    Only for a service that does not run: in the commands of its unit before a start and after a stop, and from outside
    while the unit is down. Raises HostError when it runs.
    """
    unit = paths.unit_name(service)
    if proc.unit(os.getpid()) != unit and systemd.show(unit)["ActiveState"] in ("active", "activating", "reloading"):
        raise HostError(f"{unit} runs, so nothing of it is left over")
    handles = {}
    try:
        for pid in _proven(service, user):
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except OSError as error:  # a kernel before 5.3: a signal could hit a process that took the number over
                raise HostError(f"cannot end {proc.describe(pid)} safely: {error.strerror}") from None
            handles[handle] = pid
            proof = _proof(pid, service, user)  # again: from here on the handle stands for this process alone
            if proof is None:
                os.close(handle)
                del handles[handle]
            else:
                report(f"ending {proc.describe(pid)}, left over from {unit}: {proof}")
        left = dict(handles)
        for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            for handle in left:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
            left = _wait(left, seconds)
        return sorted(left.values())
    finally:
        for handle in handles:
            os.close(handle)


def _wait(handles, seconds):
    """Wait for processes to end; gives those that have not. A pidfd can be read once its process has ended."""
    left, deadline = dict(handles), time.monotonic() + seconds
    while left:
        poll = select.poll()
        for handle in left:
            poll.register(handle, select.POLLIN)
        ended = poll.poll(max(0, deadline - time.monotonic()) * 1000)
        if not ended:
            break
        for handle, _event in ended:
            del left[handle]
    return left


def _proven(service, user):
    found = {pid: _proof(pid, service, user) for pid in proc.all_pids() if pid != os.getpid()}
    return {pid: proof for pid, proof in found.items() if proof}


def _proof(pid, service, user):
    """What proves that a process is the service's, in words, or None."""
    unit, where = paths.unit_name(service), proc.unit(pid)
    if where == unit:
        return "it is in the unit's control group"
    if where or proc.uid(pid) != _uid(user) or not proc.same_processes(pid):
        return None
    environment = proc.environment(pid) or {}
    if environment.get(paths.SERVICE_VARIABLE) == service:
        return f"its environment has {paths.SERVICE_VARIABLE}={service}"
    invocation = environment.get("INVOCATION_ID", "")
    if re.fullmatch("[0-9a-f]{32}", invocation) and systemd.logged(unit, invocation):
        return f"it was started by the unit, as its invocation {invocation}"
    return None


def _uid(user):
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
