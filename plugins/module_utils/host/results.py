"""The shape of a result, and the result of a transaction, made from its journal alone."""

from __future__ import annotations

import datetime
import functools

from . import paths, systemd
from .errors import BusyError, HostError, RefusedError
from .journal import FINAL

VERDICTS = {
    "committed": "committed",
    "restored": "rolled_back",
    "rollback_failed": "rollback_failed",
    "measured": "ok",
    "not_measured": "failed",
}


def result(service, verdict, **more):
    """A result of one service; every result has these keys."""
    empty = {"release": None, "previous": None, "message": "", "changes": []}
    return {"service": service, "verdict": verdict, **empty, **more}


def verdict_of(error):
    """The verdict of what met a HostError."""
    return "busy" if isinstance(error, BusyError) else "refused" if isinstance(error, RefusedError) else "error"


def reported(command):
    """An expected error of a command becomes its result."""

    @functools.wraps(command)
    def guarded(service, *arguments, **options):
        try:
            return command(service, *arguments, **options)
        except HostError as error:
            return result(service, verdict_of(error), message=str(error))

    return guarded


def of_transaction(journal):
    """Result of a transaction: its verdict, or `running` with its step and the engine's last log line."""
    service, steps = journal.service, journal.steps()
    if not steps:
        return result(service, "running", transaction=journal.number, step="", line="")
    first, last = steps[0], steps[-1]
    back = next((i for i, step in enumerate(steps) if step["step"] == "rolling_back"), len(steps))
    verified = [(i, step["gates"]) for i, step in enumerate(steps) if step["step"] == "verified"]
    found = result(
        service,
        VERDICTS.get(last["step"], "running"),
        transaction=journal.number,
        release=last.get("release") if last["step"] in FINAL else first["release"],
        previous=first["previous"],
        steps=steps,
        seconds=seconds(first["time"], last["time"]),
        gates=[gate for i, gates in verified if i < back for gate in gates],
        rollback_gates=[gate for i, gates in verified if i > back for gate in gates],
        next_steps=last.get("next_steps", []),
    )
    reasons = [steps[back]["reason"]] if back < len(steps) else []
    found["message"] = "; ".join([*reasons, *([last["message"]] if last.get("message") else [])])
    found["log"] = steps[back].get("log", []) if back < len(steps) else []
    found["cause"] = steps[back].get("cause") if back < len(steps) else None
    if last["step"] not in FINAL:
        lines = systemd.log(last.get("unit") or paths.unit_name(last.get("service", service)), 1)
        found.update(step=last["step"], line=lines[-1] if lines else "")
    return found


def seconds(begin, end):
    """Seconds between two times of a journal."""
    parse = datetime.datetime.fromisoformat
    return round((parse(end) - parse(begin)).total_seconds(), 3)
