"""Limits of the control group, as the kernel has them."""

from __future__ import annotations

from .. import surroundings, systemd
from ..errors import HostError
from .finding import UNDO, finding


def find(subject):
    old = subject.recorded.get("process", {}).get("control_group")
    if not old or not subject.pid:
        return
    new = surroundings.control_group.limits(subject.state["ControlGroup"])
    changed = surroundings.control_group.differing(old, new)
    if changed:
        yield finding(
            "process.control_group",
            "limits of the control group differ from those at commit",
            [f"{path}: {old.get(path)} -> {new.get(path)}" for path in changed],
            "the service gets other memory, processor time or processes than it was verified with",
            "have systemd read the unit again, and write the recorded values back",
            UNDO,
        )


def undo(subject):
    systemd.daemon_reload()  # applies the unit's own limits again
    old = subject.recorded["process"]["control_group"]
    now = surroundings.control_group.limits(subject.state["ControlGroup"])
    for path in surroundings.control_group.differing(old, now):
        if path in old and path in now:
            _write(path, old[path])


def _write(path, text):
    try:
        with open(path, "w") as stream:
            stream.write(text)
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}") from None


UNDO_BY_ID = {"process.control_group": undo}
