"""Why an engine failed: the lines of its log that matter, and the known cause they show."""

from __future__ import annotations

import re

from . import systemd
from .causes import CAUSES

LINES = 400  # of one start: what eight ranks say about one failure, and the tracebacks around it
SHOWN = 20
REQUEST = re.compile(r"\"(?:GET|POST|PUT) /\S* HTTP/")
# What an engine logs all the time and what explains nothing: requests, progress, counters, caret lines.
_NOISE = re.compile(
    rf"^\s*$|{REQUEST.pattern}|it/s\]|\d+%\|| Completed \| |throughput|Prefill batch|Decode batch|^[\s^~]+$"
    r"|is deprecated and will be removed"
)
_EXCEPTION = re.compile(r"(?:^|\s)((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt): .+)")
# They name the process that noticed, and not what happened in the one that failed.
_FOLLOWS = re.compile(r"Engine core initialization failed|WorkerProc initialization failed|EngineDeadError")


def of(release, state, lines=None):
    """The cause of an end or a failure: {"id", "what", "line", "retry", "change", "source"}, or None when unknown.

    `state` is what systemd.show gives of the unit; `lines` are those of its log (None: read them).
    """
    if lines is None:
        lines = systemd.log("", LINES, state["InvocationID"])
    killed = state["ExecMainStatus"] if state["ExecMainCode"] in (2, 3) else None
    for cause in CAUSES:
        if release["engine"] not in cause.engines:
            continue
        hits = [line for line in lines if cause.pattern.search(line)]
        if hits or killed in cause.signals:
            return _found(cause.name, cause.what, hits[0] if hits else "", cause.retry, cause.change, cause.source)
    said = [match.group(1) for match in map(_EXCEPTION.search, lines) if match and not _FOLLOWS.search(match.group(1))]
    if said:
        return _found("exception", f"the engine said: {said[-1][:300]}", said[-1], False, "", "")
    return None


def hangs(release, lines):
    """The cause that leaves an engine running without ever serving, if its log shows one."""
    for cause in CAUSES:
        if cause.hangs and release["engine"] in cause.engines:
            for line in lines:
                if cause.pattern.search(line):
                    return _found(cause.name, cause.what, line, cause.retry, cause.change, cause.source)
    return None


def _found(name, what, line, retry, change, source):
    return {"id": name, "what": what, "line": line.strip(), "retry": retry, "change": change, "source": source}


def relevant(lines, cause=None):
    """The last lines that matter, at most SHOWN, the one that shows the cause always among them."""
    kept = []
    for line in lines:
        if not _NOISE.search(line) and (not kept or _bare(line) != _bare(kept[-1])):
            kept.append(line)
    last = kept[-SHOWN:]
    if cause and cause["line"] and not any(cause["line"] in line for line in last):
        last = [cause["line"], *last[1:]]
    return last


def _bare(line):
    """A line without its time, process and rank: eight ranks say the same thing eight times."""
    return re.sub(r"^\(.*?pid=\d+\)|\d{2}:\d{2}:\d{2}|TP\d+|pid=\d+", "", line)


def text(cause):
    """A cause for a message."""
    retry = "a retry can help" if cause["retry"] else "a retry cannot help"
    return "; ".join(part for part in (cause["what"], retry if cause["change"] else "", cause["change"]) if part)
