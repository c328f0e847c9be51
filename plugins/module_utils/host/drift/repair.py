"""Mending drift: at once what needs no restart, the rest through the transaction and its gates, when allowed."""

from __future__ import annotations

import datetime

from .. import gates, releases, surroundings, systemd
from ..errors import HostError
from . import KINDS, look, window
from .finding import GATES, PERSON, RESTART, UNDO
from .subject import Host, Subject

_UNDO = {name: undo for kind in KINDS for name, undo in kind.UNDO_BY_ID.items()}
_PASSES = 3  # what one repair brings to light (a limit behind a drop-in), the next one mends


def mend(found, restart_allowed):
    """Mend what needs no restart; gives the result that is left, with `mended` and `restart` (True: one is due).

    `found` is the result of a look. The service's lock is held by the caller.
    """
    service, mended, notes = found["service"], [], []
    for _pass in range(_PASSES):
        undone = [one for one in found["findings"] if one["mended_by"] == UNDO]
        if not undone:
            break
        for one in undone:
            try:
                _UNDO[one["id"]](Subject(service, Host()))
                mended.append(one)
            except (HostError, OSError) as error:
                notes.append(f"{one['id']}: {error}")
        found = look(service)
        if notes:
            break
    left, undone = {one["id"] for one in found["findings"]}, {one["id"]: one for one in mended}
    notes += [f"{name} could not be undone: {one['repair']}" for name, one in undone.items() if name in left]
    mended = [one for name, one in undone.items() if name not in left]
    by = {one["mended_by"] for one in found["findings"]}
    due = RESTART in by and _may_restart(found, restart_allowed)
    if GATES in by and not due:
        found, proven, failed = _prove(found)
        mended += proven
        notes += failed
    if RESTART in by and not due:
        notes.append("some of it needs a restart: --allow-restart" + _or_window(found))
    if PERSON in by:
        notes.append("some of it only a person can mend")
    verdict = "drift" if found["findings"] else "mended" if mended else found["verdict"]
    message = "; ".join(note for note in (*notes, found["message"]) if note)
    return dict(found, verdict=verdict, mended=mended, message=message, restart=due)


def _may_restart(found, allowed):
    return allowed or window.is_open(_windows(found), datetime.datetime.now())


def _windows(found):
    return releases.load(found["service"], found["release"]).get("maintenance", [])


def _or_window(found):
    windows = _windows(found)
    return ", or --repair in a maintenance window ({})".format(", ".join(windows)) if windows else ""


def _prove(found):
    """Run the gates on the running service; when they pass, what has changed on the host is accepted."""
    service, number = found["service"], found["release"]
    accepted = [one for one in found["findings"] if one["mended_by"] == GATES]
    if not systemd.active(Subject(service, Host()).state):
        return found, [], ["the gates cannot prove a service that does not run"]
    failed = gates.first_failed(gates.all_gates(releases.load(service, number), number))
    if failed:
        return found, [], [failed]
    surroundings.accept(service, [one["id"].partition(".")[2] for one in accepted])
    return look(service), accepted, []
