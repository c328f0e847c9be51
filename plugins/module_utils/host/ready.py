"""Watching a model load: ready is one real completion, failed is an exit or a stall."""

from __future__ import annotations

import contextlib
import time

from . import gpus, proc, releases, systemd
from .errors import HostError, StepError
from .http import Client, HttpError
from .paths import unit_name

_POLL_SECONDS = 0.25


def client(release, number):
    """HTTP client for a release's server; it knows the key when the release has one."""
    key = None
    for line in releases.secret_on_disk(release["service"], number).splitlines():
        if line.startswith('VLLM_API_KEY="'):
            key = line[len('VLLM_API_KEY="') : -1].replace("\\", "")
    listen = release["listen"]
    return Client(listen["host"], listen["port"], key=key)


def completion(release, http, prompt, max_tokens, timeout):
    """Text of one completion at temperature 0. Raises HttpError."""
    body = {
        "model": release["model"]["served_name"],
        "prompt": prompt,
        "max_tokens": max_tokens,
        "temperature": 0,
        "top_p": 1,
        "seed": 0,
        "stream": False,
    }
    answer = http.json("POST", release["endpoints"]["completions"][0], body, timeout=timeout)
    try:
        return answer["choices"][0]["text"]
    except (KeyError, IndexError, TypeError):
        raise HttpError(f"the completion has no text: {str(answer)[:200]}") from None


def wait(release, number, note=lambda line: None):
    """Wait until a release that was started serves a completion; gives the seconds it took.

    Every new log line, byte read and MiB of GPU memory counts as progress. Without any for `stall_timeout` seconds,
    after `load_timeout` seconds in all, or when the process ends, raises StepError with the last log lines.
    """
    unit, verify = unit_name(release["service"]), release["verify"]
    http = client(release, number)
    begin = moved = time.monotonic()
    state = systemd.show(unit)
    invocation, seen = state["InvocationID"], None
    while True:
        state = systemd.show(unit)
        if state["InvocationID"] != invocation or not systemd.active(state):
            raise StepError(f"the engine ended while loading: {ending(state)}", systemd.log(unit, 20, invocation))
        if _serves(release, http, begin + verify["load_timeout"]):
            return time.monotonic() - begin
        now = time.monotonic()
        mark = _mark(release, state, invocation)
        if mark != seen:
            seen, moved = mark, now
            note(mark[0])
        if now - moved > verify["stall_timeout"]:
            raise StepError(
                "loading has stalled: no new log line, bytes read or GPU memory for %d s" % (now - moved),
                systemd.log(unit, 20, invocation),
            )
        if now - begin > verify["load_timeout"]:
            raise StepError(
                "not ready after %d s (verify.load_timeout)" % (now - begin),
                systemd.log(unit, 20, invocation),
            )
        time.sleep(_POLL_SECONDS)


def _serves(release, http, end):
    try:
        status, _body = http.request("GET", release["endpoints"]["health"][0], timeout=5)
        if status != 200:
            return False
        timeout = max(1.0, min(release["verify"]["request_timeout"], end - time.monotonic()))
        completion(release, http, "Hello", 1, timeout)
        return True
    except HttpError as error:
        if 400 <= error.status < 500:
            raise StepError(f"the server is up and refuses a completion: {error}") from None
        return False


def _mark(release, state, invocation):
    """What moves while a model loads: last log line, bytes read, GPU memory."""
    lines = systemd.log("", 1, invocation)
    read = sum(proc.read_bytes(pid) for pid in systemd.pids(state["ControlGroup"]))
    used = 0
    if release["gpus"]:
        with contextlib.suppress(HostError):  # GPUs that cannot be read are preflight's business
            used = sum(gpu["used_mib"] for index, gpu in gpus.query().items() if index in release["gpus"])
    return (lines[-1] if lines else "", read >> 20, used)


def ending(state):
    """How a process ended, in words."""
    code, status = state["ExecMainCode"], state["ExecMainStatus"]
    if code == 1:
        return "exit code %d (%s)" % (status, state["Result"])
    if code in (2, 3):
        return "signal %d (%s)" % (status, state["Result"])
    return "{} ({})".format(state["ActiveState"], state["Result"])
