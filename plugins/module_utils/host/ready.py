"""Watching a model load: ready is one real completion, failed is an exit or a stall."""

from __future__ import annotations

import contextlib
import time

from . import completions, diagnosis, gpus, proc, quoting, releases, systemd
from .errors import HostError, StepError
from .http import Client, HttpError
from .paths import unit_name

_POLL_SECONDS = 0.25
_LOOK_SECONDS = 1.0  # between two looks at what moves: each starts nvidia-smi and journalctl


def client(release, number):
    """HTTP client for a release's server; it knows the key when the release has one."""
    secrets = quoting.environment_file_values(releases.secret_on_disk(release["service"], number))
    listen = release["listen"]
    return Client(listen["host"], listen["port"], key=secrets.get("VLLM_API_KEY"))


def wait(release, number, note=lambda line: None):
    """Wait until a release that was started serves a completion; gives the seconds it took.

    Every new log line, byte read and MiB of GPU memory counts as progress. Without any for `stall_timeout` seconds,
    after `load_timeout` seconds in all, or when the process ends, raises StepError with the cause and the log lines
    that matter.
    """
    unit, verify = unit_name(release["service"]), release["verify"]
    http = client(release, number)
    begin = moved = look = time.monotonic()
    state = systemd.show(unit)
    invocation, seen = state["InvocationID"], None
    while True:
        state = systemd.show(unit)
        if state["InvocationID"] != invocation or not systemd.active(state):
            ended = {**state, "InvocationID": invocation}
            raise failed(release, ended, f"the engine ended while loading: {ending(state)}")
        unready = _unready(release, http, begin + verify["load_timeout"])
        if unready is None:
            return time.monotonic() - begin
        now = time.monotonic()
        if now >= look:
            look = now + _LOOK_SECONDS
            lines = _lines(invocation)
            # When all that is new is about requests, the last other line is still the one seen before.
            mark = (lines[-1] if lines else seen[0] if seen else "", *_moved(release, state))
            if mark != seen:
                seen, moved = mark, now
                note(mark[0])
                if diagnosis.hangs(release, lines):
                    raise failed(release, state, "the engine will never serve")
            if now - moved > verify["stall_timeout"]:
                silence = "loading has stalled: no new log line, bytes read or GPU memory for %d s" % (now - moved)
                raise failed(release, state, f"{silence} ({unready})")
        if now - begin > verify["load_timeout"]:
            raise failed(release, state, "not ready after %d s (verify.load_timeout; %s)" % (now - begin, unready))
        time.sleep(_POLL_SECONDS)


def failed(release, state, message):
    """The StepError for a unit that failed, with what its log says about the cause. `state` names the invocation."""
    lines = systemd.log("", diagnosis.LINES, state["InvocationID"])
    cause = diagnosis.of(release, state, lines)
    return StepError(
        f"{message}: {diagnosis.text(cause)}" if cause else message, diagnosis.relevant(lines, cause), cause=cause
    )


def _unready(release, http, end):
    """Why the server is not ready, or None when it is."""
    path = release["endpoints"]["health"][0]
    try:
        status, _body = http.request("GET", path, timeout=5)
        if status != 200:
            return f"GET {path}: status {status}"
        timeout = max(1.0, min(release["verify"]["request_timeout"], end - time.monotonic()))
        completions.complete(release, http, "Hello", 1, timeout)
        return None
    except HttpError as error:
        if 400 <= error.status < 500 and error.status != 429:
            raise StepError(f"the server is up and refuses a completion: {error}") from None
        return str(error)


def _lines(invocation):
    """The last log lines that are not about requests: those of this module are no progress."""
    return [line for line in systemd.log("", 20, invocation) if not diagnosis.REQUEST.search(line)]


def _moved(release, state):
    """What moves while a model loads: bytes read, and GPU memory."""
    read = sum(proc.read_bytes(pid) for pid in systemd.pids(state["ControlGroup"]))
    used = 0
    if release["gpus"]:
        with contextlib.suppress(HostError):  # GPUs that cannot be read are preflight's business
            used = sum(gpu["used_mib"] for index, gpu in gpus.query().items() if index in release["gpus"])
    return (read >> 20, used)


def ending(state):
    """How a process ended, in words."""
    code, status = state["ExecMainCode"], state["ExecMainStatus"]
    if code == 1:
        return "exit code %d (%s)" % (status, state["Result"])
    if code in (2, 3):
        return "signal %d (%s)" % (status, state["Result"])
    return "{} ({})".format(state["ActiveState"], state["Result"])
