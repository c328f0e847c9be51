"""The unit file: edited, deleted, masked, disabled, replaced by one in a stronger folder, or not read again."""

from __future__ import annotations

import difflib
import os
import stat

from .. import drop_ins, files, paths, releases, systemd
from . import set_aside
from .finding import UNDO, finding

# Folders whose units hide ours.
_STRONGER = drop_ins.FOLDERS[: drop_ins.FOLDERS.index(paths.UNITS)]


def find(subject):
    found = list(_file(subject)) + list(_shadowed(subject))
    state = subject.state
    if not found and state["UnitFileState"] != "enabled":
        yield finding(
            "unit.disabled",
            f"{subject.unit} is {state['UnitFileState'] or 'not enabled'}",
            [f"UnitFileState={state['UnitFileState']}"],
            "the service does not come back after a boot",
            f"systemctl enable {subject.unit}",
            UNDO,
        )
    if not found and state["NeedDaemonReload"] == "yes" and not drop_ins.of_unit(subject.unit):
        yield finding(
            "unit.stale",
            "systemd has not read the unit again since it was written",
            ["NeedDaemonReload=yes"],
            "the next start uses what systemd read before",
            "systemctl daemon-reload",
            UNDO,
        )
    yield from found


def _file(subject):
    path = paths.unit_file(subject.service)
    wanted = releases.unit_text(subject.release, subject.number)
    repair = f"write release {subject.number} to {path} again"
    if os.path.islink(path) and os.path.realpath(path) == "/dev/null":
        yield finding(
            "unit.masked",
            f"{subject.unit} is masked: somebody means it not to start",
            [f"{path} -> /dev/null"],
            "the service cannot be started, and does not come back after a boot or a crash",
            f"systemctl unmask {subject.unit}, and {repair}",
            UNDO,
        )
        return
    text = (files.read_bytes(path) or b"").decode("utf-8", "replace")
    if not os.path.lexists(path):
        message, evidence = f"{path} is missing", []
    elif text != wanted:
        lines = difflib.unified_diff(wanted.splitlines(), text.splitlines(), "released", "on disk", "", "", 0, "")
        evidence = [line for line in lines if not line.startswith("@@")][2:]
        message = f"{path} was edited" if text else f"{path} is empty, which masks the unit"
    elif os.path.islink(path):
        message, evidence = f"{path} is a link", [f"{path} -> {os.readlink(path)}"]
    else:
        yield from _permissions(path, repair)
        return
    yield finding("unit.file", message, evidence, "the next start is not that of the committed release", repair, UNDO)


def _permissions(path, repair):
    state = os.stat(path)
    if state.st_uid != 0 or stat.S_IMODE(state.st_mode) & 0o022:
        yield finding(
            "unit.permissions",
            f"{path} can be written by others than root",
            ["owner %d, mode %04o" % (state.st_uid, stat.S_IMODE(state.st_mode))],
            "whoever can write it can run any program as root",
            repair,
            UNDO,
        )


def _shadowed(subject):
    for folder in _STRONGER:
        path = os.path.join(folder, subject.unit)
        if os.path.lexists(path):
            yield finding(
                "unit.shadowed",
                f"{path} hides the unit",
                [path],
                "the next start is that of the other file",
                f"move {path} to {set_aside.folder(subject)}",
                UNDO,
            )


def restore(subject):
    # Written beside and renamed, so a link in its place is replaced and not followed.
    files.write(paths.unit_file(subject.service), releases.unit_text(subject.release, subject.number))
    systemd.daemon_reload()
    enable(subject)


def enable(subject):
    systemd.enable(subject.unit)
    systemd.daemon_reload()


def unshadow(subject):
    for folder in _STRONGER:
        if os.path.lexists(os.path.join(folder, subject.unit)):
            set_aside.move(subject, os.path.join(folder, subject.unit))
    systemd.daemon_reload()


UNDO_BY_ID = {
    "unit.masked": restore,
    "unit.file": restore,
    "unit.permissions": restore,
    "unit.shadowed": unshadow,
    "unit.disabled": enable,
    "unit.stale": lambda subject: systemd.daemon_reload(),
}
