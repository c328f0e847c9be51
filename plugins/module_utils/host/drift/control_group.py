"""Limits of the control group, as the kernel has them."""

from __future__ import annotations

import os

from .. import surroundings, systemd
from ..errors import HostError
from .finding import UNDO, finding


def find(subject):
    old, new, changed = _compared(subject)
    if changed:
        yield finding(
            "process.control_group",
            "limits of the control group differ from those at commit",
            [f"{path}: {old.get(path)} -> {new.get(path)}" for path in changed],
            "the service gets other memory, processor time or processes than it was verified with",
            "have systemd read the unit again, and write the recorded values back",
            UNDO,
        )


def cpus_differ(subject):
    """True when the service gets other processors from its control group, or from a slice above it, than at commit."""
    return any(os.path.basename(path) == "cpuset.cpus" for path in _compared(subject)[2])


def _compared(subject):
    """Limits at commit, limits now, and the paths that differ; nothing of a service that does not run."""
    old = subject.recorded.get("process", {}).get("control_group")
    if not old or not subject.pid:
        return {}, {}, []
    new = surroundings.control_group.limits(subject.state["ControlGroup"])
    return old, new, surroundings.control_group.differing(old, new)


def undo(subject):
    systemd.daemon_reload()  # applies the unit's own limits again
    old, new, changed = _compared(subject)
    for path in changed:
        if path in new:
            _write(path, old.get(path, surroundings.control_group.unlimited(path)) + "\n")


def _write(path, text):
    try:
        with open(path, "w") as stream:
            stream.write(text)
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}") from None


UNDO_BY_ID = {"process.control_group": undo}
