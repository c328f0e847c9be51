"""How loaded the server is, from its own counters: requests running and queued, and tokens since it began."""

from __future__ import annotations

import json
import re
import time

from .http import HttpError

PAUSE_SECONDS = 1.0  # between a failure and the next try; a server that works moves its counters in it or in the try


class WorkingError(HttpError):
    """No answer, or one that says that the server is busy. `moved`: it processed tokens meanwhile."""

    def __init__(self, message, status, moved):
        super().__init__(message, status)
        self.moved = moved


class Load:
    """`running` and `queued` requests, `tokens` (prompt and generated, since the start), `cache` (fraction in use).

    `tokens` only tell whether anything was done: some may count twice. `answered` are those of answers, each once, and
    all of an answer's by the time it ends. None where the engine does not tell.
    """

    def __init__(self, values):
        for name in ("running", "queued", "tokens", "answered", "cache"):
            setattr(self, name, values.get(name))

    def moved(self, later):
        """True when tokens were processed between this look and a later one."""
        return self.tokens is not None and later.tokens is not None and later.tokens > self.tokens


def read(release, http):
    """The load of a release's server; with all values None when it does not tell."""
    try:
        return Load(parse(http.text("/metrics", timeout=5), release["metrics"]))
    except HttpError:
        return Load({})


def parse(text, names):
    """Values by the names of Load, from Prometheus text; `names` maps each to metrics whose samples are added up."""
    found = {}
    for name, metrics in names.items():
        for metric in metrics:
            for value in re.findall(rf"^{re.escape(metric)}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE):
                found[name] = found.get(name, 0.0) + float(value)
    return found


def requests(release, http):
    """Number of requests that run or wait now, or None where the engine does not tell."""
    for path in release["endpoints"].get("load", ()):
        try:
            return counted(http.text(path, timeout=5), release["metrics"])
        except HttpError as error:
            if not error.status:
                return None
    return None


def counted(text, names):
    """The same, from the text of the answer: Prometheus text, or JSON with the fields of SGLang's /v1/loads."""
    try:
        loads = json.loads(text)["loads"]
        return sum(int(load.get(field) or 0) for load in loads for field in ("num_running_reqs", "num_waiting_reqs"))
    except (ValueError, KeyError, TypeError, AttributeError):
        gauges = parse(text, {name: names.get(name, []) for name in ("running", "queued")})
        return int(sum(gauges.values())) if gauges else None


def patiently(release, http, call, check=lambda: None):
    """What `call` gives. Busy is not dead: a failure counts only when the server does nothing else meanwhile.

    429, 503, and any failure while the token counters move mean busy, and are waited out for `verify.busy_timeout`
    seconds. Other failures, and no answer, must come `verify.attempts` times in a row. An answer that refuses the
    request (4xx) is final at once. `check` is called before each further try and may raise. Raises HttpError.
    """
    verify = release["verify"]
    end = time.monotonic() + verify["busy_timeout"]
    failures, last = 0, None
    while True:
        try:
            return call()
        except HttpError as error:
            if 400 <= error.status < 500 and error.status != 429:
                raise
            check()
            last = last or read(release, http)
            time.sleep(PAUSE_SECONDS)
            now = read(release, http)
            busy = _busy(error, last, now)
            failures, last = 0 if busy else failures + 1, now
            if failures >= verify["attempts"]:
                raise _repeated(error, failures) from None
            if busy and time.monotonic() > end:
                raise HttpError(
                    "{} (and so for {:g} s: verify.busy_timeout)".format(error, verify["busy_timeout"]), error.status
                ) from None


def once(release, http, call):
    """What `call` gives. Raises WorkingError when the server works for others or says so, HttpError otherwise."""
    before = read(release, http)
    try:
        return call()
    except HttpError as error:
        now = read(release, http)
        if not _busy(error, before, now):
            raise
        words = ""
        if before.moved(now):
            words = f" ({now.tokens - before.tokens:.0f} tokens were processed meanwhile; "
            words += f"{now.running or 0:.0f} requests run, {now.queued or 0:.0f} wait)"
        raise WorkingError(f"{error}{words}", error.status, before.moved(now)) from None


def _busy(error, before, now):
    """True for a failure of a server that is at work: it says so, or processed tokens between two looks at it."""
    return error.status in (429, 503) or before.moved(now)


def _repeated(error, failures):
    return HttpError(f"{error} ({failures} times in a row)" if failures > 1 else str(error), error.status)
