"""The decision of the watch: what is known of a service after one more look at it. Nothing here reads or writes."""

from __future__ import annotations

HEALTHY = "healthy"  # answers
BUSY = "busy"  # does not answer in time, and works
FAILING = "failing"  # does neither
DEAD = "dead"  # has failed as often in a row as is declared
LOADING = "loading"  # is being started, or has not served yet since it was
HELD = "held"  # a transaction of servewright is under way
STOPPED = "stopped"  # somebody stopped it
VERDICTS = (HEALTHY, BUSY, FAILING, DEAD, LOADING, HELD, STOPPED)

APART_SECONDS = 3600  # a release that answers and dies again and again is not restarted more often


def judge(history, seen, declared, now):
    """A new history, from the last one ({}: none) and what was seen.

    `seen` has `verdict`, `message`, `invocation` (None: does not run) and, when busy, `moved` (it processed tokens).
    `declared` has `failures` and `busy_timeout`. A history has `verdict`, `message`, `since`, `failures` (in a row),
    `served` (the invocation that answered last), `restarted` (when the watch last began a restart, or None), `well` (it
    has answered since then) and `note` (what became of the last restart). `now`, `since` and `restarted` are seconds of
    the monotonic clock: that of the day may be set meanwhile. A history ends with the boot, as that clock does.
    """
    verdict = seen["verdict"]
    if verdict == BUSY and not seen["moved"] and _too_long(history, declared, now):
        verdict = FAILING
    failures = history.get("failures", 0) + 1 if verdict == FAILING else 0
    if failures >= declared["failures"]:
        verdict = DEAD
    well = verdict == HEALTHY
    return {
        **history,
        "verdict": verdict,
        "message": seen["message"],
        "since": history["since"] if history.get("verdict") == verdict else now,
        "failures": failures,
        "served": seen["invocation"] if well else history.get("served"),
        "restarted": history.get("restarted"),
        "well": well or history.get("well", True),
        "note": "" if well else history.get("note", ""),
    }


def _too_long(history, declared, now):
    """True when a server has only said that it is busy, and done nothing that can be seen, for too long."""
    if history.get("verdict") in (FAILING, DEAD):
        return True
    return history.get("verdict") == BUSY and now - history["since"] > declared["busy_timeout"]


def against_restart(history, now):
    """Why a dead service is not restarted, in words; "" when nothing is said against it."""
    if history["restarted"] is None:
        return ""
    if not history["well"]:
        return "the last restart did not help, so there is no other until it has answered once"
    ago = now - history["restarted"]
    if ago < APART_SECONDS:
        return f"it was restarted {ago / 60:.0f} min ago, and is once an hour at most"
    return ""
