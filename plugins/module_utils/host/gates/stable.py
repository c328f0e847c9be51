"""Does the unit run without a restart?"""

from __future__ import annotations

import time

from .. import ready, systemd
from .run import FAILED, PASSED


def gate(run):
    """The unit has run without a restart since it was ready."""
    left = run.release["verify"]["stable"] - (time.monotonic() - run.since)
    while True:
        state = systemd.show(run.unit)
        if state["InvocationID"] != run.state["InvocationID"] or state["NRestarts"] != run.state["NRestarts"]:
            return FAILED, f"the unit restarted: {ready.ending(state)}", {"restarts": state["NRestarts"]}
        if not systemd.active(state):
            return FAILED, "the unit is {}: {}".format(state["ActiveState"], ready.ending(state)), {}
        if left <= 0:
            return (
                PASSED,
                "no restart for {:g} s".format(run.release["verify"]["stable"]),
                {"invocation": state["InvocationID"]},
            )
        time.sleep(min(left, 0.5))
        left -= 0.5
