"""What the runs of the timer leave for the next one. It is in /run: a boot begins anew, and so does the clock of it."""

from __future__ import annotations

import contextlib
import json
import os
import time

from .. import files, paths, systemd
from . import judge, metrics
from .look import seen


def read(service):
    """The history of a service as judge.judge() gave it, or {}."""
    try:
        return json.loads(files.read_bytes(paths.watch(service)) or b"{}")
    except ValueError:
        return {}  # cut short or edited: the next run counts anew


def keep(service, known):
    files.write(paths.watch(service), json.dumps(known))


def begin(service):
    """Note that a service has just passed all its gates."""
    invocation = systemd.show(paths.unit_name(service))["InvocationID"]
    healthy = seen(judge.HEALTHY, invocation=invocation)
    keep(service, judge.judge(read(service), healthy, {"failures": 1}, time.monotonic()))


def forget(service):
    """Remove what the runs left, metrics too: nothing would bring them up to date any more."""
    folder = read(service).get("metrics_folder")
    if folder:
        files.remove(os.path.join(folder, metrics.name(service)))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(paths.watch(service))
