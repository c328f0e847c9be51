"""One light look at a service, which changes nothing."""

from __future__ import annotations

import time

from .. import gates, journal, lock, paths, ready, releases, systemd
from ..gates.run import BUSY, FAILED
from . import judge


def look(service, known):
    """What is seen of a committed service, as judge.judge() takes it, with the results of its `gates`.

    `known` is its history. Raises HostError when its release cannot be read.
    """
    other = lock.holder(service)
    if other is not None:
        return seen(judge.HELD, other)
    number = releases.committed(service)["release"]
    release, state = releases.load(service, number), systemd.show(paths.unit_name(service))
    if not systemd.active(state):
        return seen(*not_running(service, state))
    results = gates.all_gates(release, number, light=True)
    last = results[-1]
    verdict = {FAILED: judge.FAILING, BUSY: judge.BUSY}.get(last["verdict"], judge.HEALTHY)
    if verdict == judge.FAILING and _may_load(release, state, known):
        verdict = judge.LOADING
    message = "" if verdict == judge.HEALTHY else last["message"]
    return seen(verdict, message, state["InvocationID"], last["evidence"].get("moved", False), results)


def seen(verdict, message="", invocation=None, moved=False, results=()):
    """What a look gives."""
    return {
        "verdict": verdict,
        "message": message,
        "invocation": invocation,
        "moved": moved,
        "gates": list(results),
    }


def not_running(service, state):
    """Verdict and words for a unit that is not active."""
    words = "the unit is {} ({}): {}".format(state["ActiveState"], state["SubState"], ready.ending(state))
    unit = paths.unit_name(service)
    if state["ActiveState"] in ("activating", "deactivating") and not systemd.stopping(unit, state):
        return judge.LOADING, words
    last = journal.latest(service)
    failed = last is not None and [step["step"] for step in last.steps()][-1:] == ["rollback_failed"]
    # It restarts whatever ends by itself. One that had to be killed to stop has failed, for systemd.
    by_hand = state["ActiveState"] != "failed" or (state["Result"] == "timeout" and state["ExecMainCode"] == 2)
    return (judge.STOPPED if by_hand and not failed else judge.FAILING), words


def _may_load(release, state, known):
    """True while a process that has not answered yet may be loading: after a boot, a crash or a start by hand."""
    age = time.monotonic() - state["ActiveEnterTimestampMonotonic"] / 1e6
    return state["InvocationID"] != known.get("served") and age < release["verify"]["load_timeout"]
