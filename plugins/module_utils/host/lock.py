"""One run at a time on a service."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time

from . import files, journal, paths, systemd
from .errors import BusyError


def holder(service):
    """Which transaction under way holds the service, as text, or None."""
    for unit in systemd.running(paths.transaction_unit("*")):
        other = paths.service_of(unit)
        entry = journal.latest(other)
        steps = entry.steps() if entry else []
        if not steps or steps[-1]["step"] in journal.FINAL:
            continue  # its verdict stands; the unit is about to end
        if other == service or service in steps[0]["displaces"]:
            return f"a transaction of {other} is under way ({unit})"
    return None


@contextlib.contextmanager
def held(services, owner, reason, wait=0.0):
    """Hold services for the length of a block; the kernel lets go when the holder dies.

    Gives notes about locks that were taken over from holders that had died. Waits up to `wait` seconds, also for a
    transaction under way, then raises BusyError that names the holder.
    """
    files.make_folder(paths.RUN)
    end = time.monotonic() + wait
    with contextlib.ExitStack() as stack:
        notes = []
        for service in sorted(services):  # in one order everywhere, so that two runs cannot wait for each other
            stream = stack.enter_context(open(paths.lock(service), "a+"))
            while True:
                other = holder(service) if _locked(stream) else _described(stream) or "by another run"
                if other is None:
                    break
                fcntl.flock(stream, fcntl.LOCK_UN)
                if time.monotonic() >= end:
                    raise BusyError(f"{service} is held: {other}")
                time.sleep(0.2)
            dead = _described(stream)
            if dead:
                notes.append(f"took over the lock of {service}, which was held {dead} and is dead")
            _write(stream, {"owner": owner, "pid": os.getpid(), "reason": reason, "since": journal.now()})
            stack.callback(_write, stream, None)
        yield notes


def _locked(stream):
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _write(stream, entry):
    stream.seek(0)
    stream.truncate()
    if entry is not None:
        json.dump(entry, stream)
    stream.flush()


def _described(stream):
    """The holder that a lock file names, or "" when it names none."""
    stream.seek(0)
    text = stream.read()
    try:
        entry = json.loads(text)
        why = ", for: " + entry["reason"] if entry["reason"] else ""
        return "by {} since {}, pid {}{}".format(entry["owner"], entry["since"], entry["pid"], why)
    except (ValueError, KeyError):
        return "by another run" if text else ""
