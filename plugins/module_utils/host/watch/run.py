"""What a run of the timer does, and what a look by hand shows."""

from __future__ import annotations

import math
import time

from .. import lock, releases
from ..errors import HostError
from . import history, judge, metrics
from .look import look

REQUESTER = "servewright-watch"


def run(service):
    """One run of the timer. Gives lines for the journal, with systemd's prefix for their priority (sd-daemon(3))."""
    told = declared(service)
    if told is None:
        return []
    before, now = history.read(service), time.monotonic()
    known = judge.judge(before, look(service, before), told, now)
    if known["verdict"] == judge.DEAD and told["restart"]:
        known = _restart(service, known, told, now)
    history.keep(service, {**known, "metrics_folder": told["metrics_folder"]})
    if told["metrics_folder"]:
        metrics.write(told["metrics_folder"], service, known, time.time())
    return list(lines(service, before, known, now))


def declared(service):
    """What the committed release declares of the watch, with `busy_timeout`; None when there is none."""
    pointer = releases.committed(service)
    release = releases.load(service, pointer["release"]) if pointer else {}
    found = release.get("watch")
    return found and {**found, "busy_timeout": release["verify"]["busy_timeout"]}


def once(service):
    """(what a look sees, the history that the timer would keep of it, what is declared); nothing is kept."""
    told, before = declared(service), history.read(service)
    found = look(service, before)
    known = judge.judge(before, found, told or {"failures": math.inf, "busy_timeout": math.inf}, time.monotonic())
    return found, known, told


def lines(service, before, known, now):
    """What a run says: the verdict when it has changed, and what became of a restart."""
    bad = known["verdict"] in (judge.FAILING, judge.DEAD)
    if known["verdict"] != before.get("verdict"):
        words = known["verdict"] + (f", {known['failures']} in a row" if known["failures"] > 1 else "")
        words += f", after {now - before['since']:.0f} s {before['verdict']}" if before else ""
        words += f": {known['message']}" if known["message"] else ""
        yield f"<{4 if bad else 6}>{service}: {words}"
    if known["note"] and known["note"] != before.get("note"):
        yield f"<4>{service}: {known['note']}"


def _restart(service, known, told, now):
    """Begin to restart a dead service. Gives the history with `note`: that it was done, or why it was not."""
    from .. import launch  # most runs do without it, and to import it takes longer than the look

    against = judge.against_restart(known, now)
    if against:
        return {**known, "note": f"not restarted: {against}"}
    reason = "{}, {} times in a row: {}".format(judge.DEAD, known["failures"], known["message"])
    try:
        with lock.held({service}, REQUESTER, reason) as notes:
            # What was true before the lock was held may not be true now.
            again = judge.judge(known, look(service, known), told, time.monotonic())
            if again["verdict"] != judge.DEAD:
                return {**known, "note": f"not restarted: it is {again['verdict']} now"}
            number = releases.committed(service)["release"]
            begun = launch.restart(service, number, "watch", REQUESTER, reason, notes)
    except HostError as error:
        return {**known, "note": f"not restarted: {error}"}
    if begun["verdict"] != "running":
        return {**known, "note": f"not restarted: {begun['message']}"}
    return {**known, "restarted": now, "well": False, "note": f"restarting it: transaction {begun['transaction']}"}
