"""The service is down, or ends by itself again and again."""

from __future__ import annotations

from .. import ready, systemd
from .finding import RESTART, finding


def find(subject):
    state = subject.state
    if systemd.active(state) or subject.changing:
        return
    active, ended = state["ActiveState"], ready.ending(state)
    if active in ("activating", "deactivating"):
        name, message = "service.restarting", f"ends by itself: {state['NRestarts']} restarts, last {ended}"
    else:
        name, message = "service.down", "is down: " + (ended if ended.startswith(active) else f"{active}, {ended}")
    yield finding(
        name,
        f"{subject.service} {message}",
        [
            "ActiveState={ActiveState} SubState={SubState} NRestarts={NRestarts}".format(**state),
            *systemd.log(subject.unit, 5),
        ],
        "nothing is served",
        "start the committed release through its gates",
        RESTART,
    )


UNDO_BY_ID = {}
