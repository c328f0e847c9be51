"""systemd, through its own tools."""

from __future__ import annotations

import json
import os
import re
import time

from . import paths
from .commands import run
from .errors import HostError

_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "SubState",
    "Result",
    "MainPID",
    "ExecMainCode",
    "ExecMainStatus",
    "InvocationID",
    "NRestarts",
    "UnitFileState",
    "FragmentPath",
    "DropInPaths",
    "NeedDaemonReload",
    "ControlGroup",
    "ActiveEnterTimestamp",
    "ActiveEnterTimestampMonotonic",
    "User",
)
_CGROUP_ROOTS = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup", "/sys/fs/cgroup/unified")


def present():
    """True when systemd is PID 1 here."""
    return os.path.isdir("/run/systemd/system")


def show(unit):
    """State of a unit as systemd has it: a mapping of property to text (counts and codes as numbers)."""
    out = run(["systemctl", "show", unit, "--no-pager", "-p", ",".join(_PROPERTIES)]).stdout
    state = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    for name in ("MainPID", "NRestarts", "ExecMainStatus", "ExecMainCode", "ActiveEnterTimestampMonotonic"):
        state[name] = int(state.get(name) or 0)
    return state


def active(state):
    return state["ActiveState"] in ("active", "reloading")


def stopping(unit, state):
    """True while somebody has a unit stopped: one that ends by itself passes through the same state, unasked."""
    return state["ActiveState"] == "deactivating" and _job(unit) in ("stop", "restart")


def awaiting(unit, state):
    """True while a unit is down only because its start waits for that of others, as during a boot."""
    return state["ActiveState"] in ("inactive", "failed") and _job(unit) in ("start", "restart")


def _job(unit):
    """What systemd does with a unit or is to do next, such as `start`; "" when it is asked for nothing."""
    job = run(["systemctl", "list-jobs", "--no-legend", "--no-pager", unit]).stdout.split()  # number, unit, type, state
    return job[2] if job else ""


def running(pattern):
    """Names of the units that match a pattern and are starting, running or ending."""
    out = run(
        [
            "systemctl",
            "list-units",
            "--plain",
            "--no-legend",
            "--no-pager",
            "--state=active,activating,deactivating",
            pattern,
        ]
    ).stdout
    return [line.split()[0] for line in out.splitlines() if line.strip()]


def wait_gone(unit, timeout):
    """Wait until a unit has ended. Raises HostError after `timeout` seconds."""
    end = time.monotonic() + timeout
    while running(unit):
        if time.monotonic() > end:
            raise HostError(f"{unit} has not ended within {timeout} s")
        time.sleep(0.1)


def daemon_reload():
    run(["systemctl", "daemon-reload"], timeout=120)


def start(unit, timeout):
    """Start a unit and wait until its process has been executed. Raises HostError with systemd's reason."""
    run(["systemctl", "reset-failed", unit], check=False)
    done = run(["systemctl", "start", unit], timeout=timeout, check=False)
    if done.returncode != 0:
        raise HostError(
            "systemd could not start {}: {}".format(unit, done.stderr.strip().splitlines()[0] if done.stderr else "")
        )


def stop(unit, timeout):
    """Stop a unit: SIGTERM to the main process, SIGKILL to what is left after the unit's own TimeoutStopSec.

    Ends after `timeout` seconds in any case: what outlives SIGKILL keeps systemd waiting, too.
    """
    run(["timeout", f"{timeout:g}", "systemctl", "stop", unit], timeout=timeout + 10, check=False)


def kill(unit, grace):
    """Begin to stop a unit, with SIGKILL to all of it after `grace` seconds instead of the unit's TimeoutStopSec."""
    run(["systemctl", "stop", "--no-block", unit])
    end = time.monotonic() + grace
    while show(unit)["ActiveState"] not in ("inactive", "failed"):
        if time.monotonic() > end:
            run(["systemctl", "kill", "--signal=SIGKILL", unit], check=False)
            return
        time.sleep(0.1)


def enable(unit):
    """Have a unit start at boot; nothing is run when it already does."""
    if os.path.islink(f"{paths.UNITS}/multi-user.target.wants/{unit}"):
        return
    run(["systemctl", "enable", "--quiet", "--no-reload", unit], timeout=120)


def disable(unit):
    run(["systemctl", "disable", "--quiet", unit], timeout=120, check=False)


def pids(control_group):
    """Process ids in a control group and all below it."""
    found = []
    if not control_group or control_group == "/":
        return found
    for root in _CGROUP_ROOTS:
        top = root + control_group
        if os.path.exists(os.path.join(top, "cgroup.procs")):
            for folder, _folders, _files in os.walk(top):
                try:
                    with open(os.path.join(folder, "cgroup.procs")) as stream:
                        found += [int(line) for line in stream]
                except OSError:
                    continue  # the group ended while we looked
            return sorted(set(found))
    return found


def log(unit, lines=20, invocation=None):
    """Last log lines of a unit, oldest first; of one invocation when its id is given."""
    match = ["_SYSTEMD_INVOCATION_ID=" + invocation] if invocation else ["-u", unit]
    out = run(["journalctl", "--no-pager", "-o", "json", "-n", str(lines), *match], check=False).stdout
    return [_message(json.loads(line)) for line in out.splitlines() if line.startswith("{")]


def logged(unit, invocation):
    """True when the host's log has a line that a process of this unit wrote in this invocation."""
    match = ["_SYSTEMD_UNIT=" + unit, "_SYSTEMD_INVOCATION_ID=" + invocation]
    return bool(run(["journalctl", "--no-pager", "--quiet", "-o", "cat", "-n", "1", *match], check=False).stdout)


def log_text(invocation, pattern):
    """Log lines of one invocation that match a regular expression."""
    out = run(["journalctl", "--no-pager", "-o", "cat", "_SYSTEMD_INVOCATION_ID=" + invocation], check=False).stdout
    return [line for line in out.splitlines() if re.search(pattern, line)]


def _message(entry):
    message = entry.get("MESSAGE") or ""
    if isinstance(message, list):  # journald gives bytes that are not UTF-8 as a list of numbers
        message = bytes(message).decode("utf-8", "replace")
    return message


def run_transient(unit, argv, description, **properties):
    """Start a program as a transient unit of its own, which nothing of the caller's session can end."""
    properties = dict(properties, Type="exec", SyslogIdentifier="servewright")
    settings = [word for name, value in properties.items() for word in ("-p", f"{name}={value}")]
    run(["systemd-run", "--quiet", "--collect", "--unit", unit, "--description", description, *settings, *argv])


def start_later(unit):
    """Queue the start of a unit without waiting for it."""
    run(["systemctl", "start", "--no-block", unit])


def verify_unit(path):
    """What `systemd-analyze verify` says about a unit file, one line an entry; empty when it is right.

    Raises HostError when it fails without a word about this unit: then nothing was verified.
    """
    done = run(["systemd-analyze", "verify", "--recursive-errors=no", path], check=False)
    if "unrecognized option" in done.stderr:  # before 250, which never fails for the units that this one depends on
        done = run(["systemd-analyze", "verify", path], check=False)
    about = re.compile(rf"(^|[\s/]){re.escape(os.path.basename(path))}\b")
    said = (done.stderr + done.stdout).splitlines()
    found = [line for line in said if about.search(line)]
    if done.returncode != 0 and not found:
        raise HostError("systemd-analyze verify failed (%d): %s" % (done.returncode, " ".join(said)))
    return found


def ours(service):
    """True when the unit file of that name was written by servewright, None when there is none."""
    try:
        with open(paths.unit_file(service), encoding="utf-8", errors="replace") as stream:
            return "\n[X-Servewright]\n" in stream.read()
    except FileNotFoundError:
        return None
