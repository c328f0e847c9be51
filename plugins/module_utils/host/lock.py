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
    """Who holds the service now, as text, or None: another command, or a transaction that is under way."""
    state = systemd.show(paths.transaction_unit(service))
    if state["ActiveState"] in ("active", "activating", "deactivating"):
        return f"a transaction is under way ({paths.transaction_unit(service)})"
    return None


@contextlib.contextmanager
def held(service, owner, reason, wait=0.0):
    """Hold a service for the length of a block; the kernel lets go when the holder dies.

    Waits up to `wait` seconds, also for a transaction under way, then raises BusyError that names the holder.
    """
    files.make_folder(paths.RUN)
    end = time.monotonic() + wait
    with open(paths.lock(service), "a+") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                other = holder(service)
                if other is None:
                    break
                fcntl.flock(stream, fcntl.LOCK_UN)
            except BlockingIOError:
                other = _described(stream)
            if time.monotonic() >= end:
                raise BusyError(f"{service} is held: {other}")
            time.sleep(0.2)
        stream.seek(0)
        stream.truncate()
        json.dump({"owner": owner, "pid": os.getpid(), "reason": reason, "since": journal.now()}, stream)
        stream.flush()
        try:
            yield
        finally:
            stream.seek(0)
            stream.truncate()


def _described(stream):
    stream.seek(0)
    try:
        entry = json.loads(stream.read())
        return "by %s since %s, pid %d%s" % (
            entry["owner"],
            entry["since"],
            entry["pid"],
            ", for: " + entry["reason"] if entry["reason"] else "",
        )
    except (ValueError, KeyError):
        return "by another run"
