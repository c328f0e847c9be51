"""Does the unit run without a restart?"""

from __future__ import annotations

import time

from .run import FAILED, PASSED


def gate(run):
    """The unit runs without a restart for `verify.stable` seconds after it became ready.

    Whether it still does is also asked after every other gate.
    """
    left = run.verify["stable"] - (time.monotonic() - run.since)
    while True:
        ended = run.restarted()
        if ended:
            return FAILED, ended, {}
        if left <= 0:
            evidence = {"invocation": run.state["InvocationID"], "restarts": run.state["NRestarts"]}
            return PASSED, "no restart for {:g} s".format(run.verify["stable"]), evidence
        time.sleep(min(left, 0.5))
        left -= 0.5
