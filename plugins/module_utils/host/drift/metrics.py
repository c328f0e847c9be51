"""What was found, for the journal and for node_exporter's textfile collector."""

from __future__ import annotations

from .. import metrics

FILE = "servewright_drift.prom"
_METRICS = (
    ("servewright_drift_findings", "Findings of the last look for drift."),
    ("servewright_drift_finding", "One finding of the last look for drift."),
    ("servewright_drift_last_run_timestamp_seconds", "When drift was last looked for."),
    ("servewright_drift_duration_seconds", "How long the last look for drift took."),
)


def write(folder, results, time, seconds):
    """Replace the metrics file in a folder. `time` is in seconds since the epoch. Raises HostError."""
    metrics.write(folder, FILE, rows(results, time, seconds))


def rows(results, time, seconds):
    """The metrics, as metrics.text() takes them."""
    counts, each = [], []
    for result in results:
        if result["verdict"] not in ("ok", "drift"):
            continue  # a deploy was under way, or it could not be looked at: the journal says which
        service = result["service"]
        counts.append(f'{{service="{service}"}} {len(result["findings"])}')
        each += [
            '{{service="{}",id="{}",needs_restart="{}"}} 1'.format(
                service, one["id"], "true" if one["needs_restart"] else "false"
            )
            for one in result["findings"]
        ]
    samples = (counts, each, [f" {time:.0f}"], [f" {seconds:.3f}"])
    return [(*described, found) for described, found in zip(_METRICS, samples)]


def lines(results):
    """One line a finding for the journal, with systemd's prefix for its priority (sd-daemon(3))."""
    for result in results:
        service = result["service"]
        for one in result["findings"]:
            yield "<4>{}: drift {}: {}; {}".format(service, one["id"], one["message"], one["repair"])
        if result["verdict"] in ("busy", "error"):
            yield f"<4>{service}: not looked at: {result['message']}"
    found = sum(len(result["findings"]) for result in results)
    yield f"<6>looked for drift of {len(results)} services: {found} findings"
