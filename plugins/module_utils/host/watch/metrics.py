"""Metrics of the watch, for node_exporter's textfile collector: one file a service."""

from __future__ import annotations

from .. import metrics
from . import judge


def write(folder, service, known, now):
    """Replace the file of a service in a folder. Raises HostError."""
    metrics.write(folder, name(service), rows(service, known, now))


def name(service):
    return f"servewright_watch_{service}.prom"


def rows(service, known, now):
    """The metrics of a history, as metrics.text() takes them. `now` is in seconds since the epoch."""
    label = f'service="{service}"'
    return [
        (
            "servewright_watch_verdict",
            "1 for the verdict of the last light look, 0 for the others.",
            [f'{{{label},verdict="{name}"}} {int(name == known["verdict"])}' for name in judge.VERDICTS],
        ),
        ("servewright_watch_failures", "Failures in a row.", [f"{{{label}}} {known['failures']}"]),
        ("servewright_watch_last_run_timestamp_seconds", "When it was looked at.", [f"{{{label}}} {now:.0f}"]),
    ]
