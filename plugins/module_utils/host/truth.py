"""Does the running process match a release? Read from the kernel, not from files."""

from __future__ import annotations

import math
import pwd

from . import masks, proc, systemd
from .nccl import debug

# What systemd itself adds to a service's environment (systemd.exec(5), "Environment Variables in Spawned Processes").
_SYSTEMD = frozenset(
    (
        "LANG",
        "LANGUAGE",
        "USER",
        "LOGNAME",
        "HOME",
        "SHELL",
        "PATH",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "SYSTEMD_EXEC_PID",
        "MEMORY_PRESSURE_WATCH",
        "MEMORY_PRESSURE_WRITE",
        "CACHE_DIRECTORY",
        "CREDENTIALS_DIRECTORY",
        "NOTIFY_SOCKET",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
        "LISTEN_PID",
        "TERM",
    )
)


def differences(release, state):
    """How the running main process differs from a release: a list of {"field", "declared", "running"}.

    `state` is what systemd.show gives. An empty list means: nothing that only a restart could take up.
    """
    pid = state["MainPID"]
    if not pid:
        return [{"field": "process", "declared": "running", "running": state["ActiveState"]}]
    found = []
    argv = proc.argv(pid)
    if argv != release["argv"]:
        found.append({"field": "argv", "declared": release["argv"], "running": argv})
    found += environment(release, pid)
    return found + _rights(release, pid)


def _rights(release, pid):
    """How user and limits of one process differ from a release's."""
    found = []
    uid = proc.uid(pid)
    if uid is not None and uid != _uid(release["user"]):
        found.append({"field": "user", "declared": release["user"], "running": uid})
    limits, manager = proc.limits(pid) or {}, proc.limits(1) or {}
    files = release["limits"]["open_files"]
    bounds = [("open_files", "nofile", files, _number(manager.get("nofile", "unlimited")))]
    if "\nLimitMEMLOCK=infinity\n" in release["unit"]:
        # Without the right to raise it (a container), systemd gives what it has itself.
        bounds.append(("locked_memory", "memlock", "unlimited", _number(manager.get("memlock.hard", "unlimited"))))
    for field, name, declared, most in bounds:
        running = limits.get(name, "unlimited")
        if _number(running) < min(_number(declared), most):
            found.append({"field": "limits." + field, "declared": declared, "running": running})
    return found


def _number(limit):
    return math.inf if limit == "unlimited" else limit


def environment(release, pid, names=None):
    """How the environment of one process differs from a release's; of `names` only, when given.

    Values of secrets are compared by presence and never shown. A variable that nobody declared is a difference, too:
    it comes from a drop-in or a manager-wide default. What a transaction set for the log of its start is not one.
    """
    running = proc.environment(pid)
    if running is None:
        return []
    declared = release["environment"]
    found = []
    for name in sorted(declared if names is None else names):
        if running.get(name) != declared[name]:
            found.append({"field": "environment." + name, "declared": declared[name], "running": running.get(name)})
    if names is None:
        for name in sorted(set(release["secrets"]) - set(running)):
            found.append({"field": "environment." + name, "declared": "(secret)", "running": None})
        for name in undeclared(release, running):
            found.append({"field": "environment." + name, "declared": None, "running": masks.HIDDEN})
    return found


def undeclared(release, environment):
    """Names of an environment that neither the release declares nor systemd or a transaction sets."""
    names = set(environment) - set(release["environment"]) - set(release["secrets"]) - debug.ours(environment)
    return sorted(name for name in names - _SYSTEMD if not name.startswith("LC_"))  # locale.conf(5), as LANG


def tree(release, state):
    """How user, limits and NCCL environment of the other processes of the service differ from the release.

    The NCCL variables are what workers must not lose; engines change others of their workers by design. A worker that
    sets its title writes over the first part of its environment (setproctitle in vLLM 0.32.0 and SGLang 0.5.23): what
    is missing there proves nothing, and only a value that differs counts. NCCL's own log is the proof for those.
    """
    found = []
    for pid in systemd.pids(state["ControlGroup"]):
        if pid == state["MainPID"]:
            continue
        values = proc.environment(pid) or {}
        whole = "PATH" in values and "INVOCATION_ID" in values
        names = [name for name in release["nccl"] if values and (whole or name in values)]
        for item in environment(release, pid, names=names) + _rights(release, pid):
            found.append(dict(item, pid=pid, process=proc.name(pid)))
    return found


def _uid(user):
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
