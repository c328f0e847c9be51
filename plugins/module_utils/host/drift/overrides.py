"""Drop-ins: systemd merges them into the unit from every folder, behind the release's back."""

from __future__ import annotations

from .. import drop_ins, files, systemd
from . import set_aside
from .finding import RESTART, UNDO, finding


def find(subject):
    paths = drop_ins.of_unit(subject.unit)
    if paths:
        lines = winning(paths)
        yield finding(
            "unit.drop_in",
            "changed by {}".format(", ".join(paths)),
            lines or [f"{path}: no line of it wins" for path in paths],
            "the next start is not that of the committed release; settings of the control group hold at once",
            f"move the files to {set_aside.folder(subject)} and have systemd read the unit again",
            UNDO,
        )
    recorded = subject.recorded.get("host", {}).get("drop_ins")
    if recorded is None:
        return
    old, new = (
        {path: digest for path, digest in every.items() if drop_ins.applies(path, subject.unit)}
        for every in (recorded, subject.host.host["drop_ins"])
    )
    if old != new:
        changed = [path for path in new if old.get(path) != new[path]]
        yield finding(
            "unit.shared_drop_in",
            "drop-ins for many services have changed: {}".format(", ".join(sorted(set(old) ^ set(new) | set(changed)))),
            winning(changed) + [f"{path} is gone" for path in sorted(set(old) - set(new))],
            "the next start is not that of the committed release",
            "undo it, or declare what it does; it concerns other services too, so it is not moved. A restart through "
            "the gates takes it up and records it",
            RESTART,
        )


def winning(paths):
    """The lines of drop-ins that win, as text."""
    texts = [(path, (files.read_bytes(path) or b"").decode("utf-8", "replace")) for path in paths]
    return [f"{path}:{number}: {line}" for path, number, line in drop_ins.winning(texts)]


def undo(subject):
    for path in drop_ins.of_unit(subject.unit):
        set_aside.move(subject, path)
    systemd.daemon_reload()


UNDO_BY_ID = {"unit.drop_in": undo}
