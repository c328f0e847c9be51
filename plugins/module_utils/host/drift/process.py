"""The running process: what it was started with, and the files it has loaded."""

from __future__ import annotations

import os

from .. import libraries, masks, ports, proc, quoting, releases, surroundings, systemd, truth
from . import control_group
from .finding import RESTART, finding

_RESTART = "restart the committed release through its gates"
_NOT_FILES = ("/dev/", "/memfd:", "/tmp/", "/SYSV", "/run/", "/proc/", "/[")


def find(subject):
    if not subject.pid:
        return
    fields = truth.differences(subject.release, subject.state) + truth.tree(subject.release, subject.state)
    kinds = {}
    for field in fields:
        kinds.setdefault(field["field"].partition(".")[0], []).append(field)
    if "process" in kinds:
        return  # it ended while we looked
    kinds = {**_recorded(subject), **kinds}
    for kind, differing in sorted(kinds.items()):
        yield finding(
            f"process.{kind}",
            f"{_WORDS[kind]} of the running process differ{'s' if kind == 'user' else ''} from the committed release",
            [line for field in differing for line in _lines(field)],
            "what serves is not what was verified",
            _RESTART,
            RESTART,
        )
    yield from _secrets(subject)
    yield from _libraries(subject)


def _recorded(subject):
    """How limits and user of the main process differ from those at commit, by kind.

    An engine changes some of its own while it loads, so they are compared once it listens, as it did at commit. Records
    of earlier versions hold fewer names.
    """
    found = {}
    for kind, values in surroundings.rights.of(subject.pid).items():
        old = subject.recorded.get("process", {}).get(kind, {})
        names = [name for name in sorted(values) if name in old and old[name] != values[name]]
        if "cpus" in names and control_group.cpus_differ(subject):
            names.remove("cpus")  # the kernel narrows the process to what its control group has
        if names:
            found[kind] = [
                {"field": f"{kind}.{name}", "declared": old[name], "running": values[name]} for name in names
            ]
    return found if found and _listens(subject) else {}


def _listens(subject):
    listen = subject.release["listen"]
    return bool({*ports.holders(listen["host"], listen["port"])} & {*systemd.pids(subject.state["ControlGroup"])})


_WORDS = {"argv": "arguments", "environment": "environment variables", "user": "the user", "limits": "limits"}


def _lines(field):
    where = " (pid %d, %s)" % (field["pid"], field["process"]) if "pid" in field else ""
    declared, running = field["declared"], field["running"] or []
    if field["field"] != "argv":
        values = (
            masks.HIDDEN if value not in (None, "(secret)") and masks.named(field["field"], value) else value
            for value in (declared, field["running"])
        )
        yield "{}{}: declared {}, running {}".format(field["field"], where, *values)
        return
    yield "only declared: {}".format(" ".join(word for word in declared if word not in running) or "nothing")
    yield "only running: {}".format(" ".join(word for word in running if word not in declared) or "nothing")


def _secrets(subject):
    """Secrets that the process has with other values than the release; names only."""
    if releases.secrets_lost(subject.release, subject.number):
        return  # told as damage: a restart could not mend it
    running = proc.environment(subject.pid) or {}
    on_disk = releases.secret_on_disk(subject.service, subject.number)
    names = [
        name
        for name in sorted(subject.release["secrets"])
        if name in running and quoting.environment_file_line(name, running[name]) not in on_disk
    ]
    if names:
        yield finding(
            "process.secrets",
            "the running process has other values of {} than the release".format(", ".join(names)),
            [f"{name}: {masks.HIDDEN}" for name in names],
            "the next start has other credentials",
            _RESTART,
            RESTART,
        )


def _libraries(subject):
    """Programs and libraries that were replaced or removed after a process of the service had loaded them."""
    gone = {}
    for pid in systemd.pids(subject.state["ControlGroup"]):
        for path in {mapping.path for mapping in proc.mapped(pid) if mapping.deleted}:
            path = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            if not path.startswith((*_NOT_FILES, subject.release["cache"] + "/")) and (
                libraries.LIBRARY.search(path) or path == _program(pid)
            ):
                gone.setdefault(path, []).append(pid)
    if gone:
        yield finding(
            "process.libraries",
            "running with files that were replaced or removed since: {}".format(", ".join(sorted(gone))),
            [f"{path}: {len(pids)} process{'es' if len(pids) > 1 else ''}" for path, pids in sorted(gone.items())],
            "the code that runs is no longer on disk: a part that is loaded later may not fit, and the next start "
            "runs other code",
            _RESTART,
            RESTART,
        )


def _program(pid):
    try:
        return os.readlink("/proc/%d/exe" % pid).replace(" (deleted)", "")
    except OSError:
        return None


UNDO_BY_ID = {}
