"""Are the running processes the release?"""

from __future__ import annotations

from .. import libraries, proc, systemd, truth
from .run import FAILED, PASSED


def gate(run):
    """Arguments, environment, user, limits and libraries of the running processes are the release's."""
    pids = systemd.pids(run.state["ControlGroup"])
    found = truth.differences(run.release, run.state)
    workers = truth.tree(run.release, run.state) + libraries.differences(run.release, pids)
    evidence = {
        "main": run.state["MainPID"],
        "processes": [proc.describe(pid) for pid in pids],
        "differences": found + workers,
    }
    if found:
        first = found[0]
        return FAILED, "{field} of the running process is {running}, declared is {declared}".format(**first), evidence
    if workers:
        return FAILED, _text(workers[0]), evidence
    return PASSED, "arguments, environment and libraries of %d processes as declared" % len(pids), evidence


def _text(item):
    kind, _dot, name = item["field"].partition(".")
    what = f"{name}={item['running']}" if kind == "environment" else f"{item['field']} {item['running']}"
    return "process %d (%s) has %s, declared is %s" % (item["pid"], item["process"], what, item["declared"])
