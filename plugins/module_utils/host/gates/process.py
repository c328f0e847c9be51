"""Are the running processes the release?"""

from __future__ import annotations

from .. import proc, systemd, truth
from .run import FAILED, PASSED


def gate(run):
    """Arguments, environment, user and limits of the running processes are the release's."""
    found = truth.differences(run.release, run.state)
    workers = truth.tree(run.release, run.state)
    pids = systemd.pids(run.state["ControlGroup"])
    evidence = {
        "main": run.state["MainPID"],
        "processes": [proc.describe(pid) for pid in pids],
        "differences": found + workers,
    }
    if found:
        first = found[0]
        return (
            FAILED,
            "{} of the running process is {}, declared is {}".format(
                first["field"], first["running"], first["declared"]
            ),
            evidence,
        )
    if workers:
        first = workers[0]
        return (
            FAILED,
            "process %d (%s) has %s=%s, declared is %s"
            % (
                first["pid"],
                first["process"],
                first["field"].split(".", 1)[1],
                first["running"],
                first["declared"],
            ),
            evidence,
        )
    return PASSED, "arguments and environment of %d processes as declared" % len(pids), evidence
