"""How long a service will be down for a restart, from how long it was down for the last ones."""

from __future__ import annotations

import datetime
import statistics

from . import journal, releases
from .errors import HostError

_LATEST = 5  # restarts that count: caches, disks and engines change


def expected(service, model):
    """{"seconds", "of": number of restarts, "same_model"} for a restart of a service, or None when none was measured.

    `model` is the path of the model that it will load. How long others took counts only when this one never loaded.
    """
    measured = _measured(service)
    same = [seconds for seconds, path in measured if path == model][:_LATEST]
    seconds = same or [seconds for seconds, _path in measured][:_LATEST]
    if not seconds:
        return None
    return {"seconds": round(statistics.median(seconds), 1), "of": len(seconds), "same_model": bool(same)}


def _measured(service):
    """Seconds from each stop to when it served again, and the path of the model; the latest first."""
    found = []
    for entry in reversed(journal.all_of(service)):
        try:
            steps = entry.steps()
        except HostError:
            continue  # a damaged journal is reported by history, and says nothing here
        stopped, of_entry = None, []
        for step in steps:
            if step["step"] == "stopping":
                stopped = step
            elif step["step"] == "verifying" and stopped is not None and step.get("service") == service:
                of_entry.append((_seconds(stopped, step), _model(service, step["release"])))
                stopped = None
        found += reversed(of_entry)
    return [(seconds, path) for seconds, path in found if seconds >= 0]  # a clock that was set back measures nothing


def _seconds(begin, end):
    parse = datetime.datetime.fromisoformat
    return (parse(end["time"]) - parse(begin["time"])).total_seconds()


def _model(service, number):
    try:
        return releases.load(service, number)["model"]["path"]
    except HostError:
        return None  # it is no longer kept
