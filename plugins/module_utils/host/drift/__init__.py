"""Drift: what differs from the committed release, on disk, in systemd, in the running process and on the host."""

from __future__ import annotations

from .. import lock, paths, releases, systemd
from ..errors import DamagedError, HostError
from ..results import result
from . import claim, control_group, files, host, overrides, own, process, state, unit
from .finding import PERSON
from .finding import finding as new_finding
from .subject import Host, Subject

# In the order they are told: what is down first, then causes before what follows from them.
KINDS = (state, claim, own, unit, overrides, process, control_group, files, host)


def look(service, now=None):
    """The drift of one service as a result: `drift` with its findings, `ok`, or `busy` during a transaction.

    `now` is a Host to share what is read of the host between services. Nothing is changed.
    """
    other = lock.holder(service)
    if other is not None:
        return result(service, "busy", message=other, findings=[])
    try:
        pointer = releases.committed(service)
        if pointer is None:
            return _without_commit(service)
        subject = Subject(service, now or Host())
        found, note = findings(subject)
    except DamagedError as error:
        found, note, pointer = [_damaged(service, error)], "", {"release": None}
    except HostError as error:
        return result(service, "error", message=str(error), findings=[])
    return result(service, "drift" if found else "ok", release=pointer["release"], message=note, findings=found)


def _without_commit(service):
    """The result of a service of which no release is committed. Raises DamagedError when one was."""
    if systemd.ours(service):
        raise DamagedError(f"{paths.committed(service)} is missing, and {paths.unit_file(service)} is of servewright")
    if service not in paths.services():
        known = ", ".join(paths.services()) or "none"
        return result(service, "error", message=f"there is no service {service}; there are: {known}", findings=[])
    return result(service, "ok", message="nothing is committed", findings=[])


def findings(subject):
    """Findings of a service, and a note for a person when there is something else to say."""
    if subject.displaced_by:
        return [], f"not looked at: {subject.displaced_by} was deployed on its GPUs"
    found = [one for kind in KINDS for one in kind.find(subject)]
    if any(one["id"].startswith("unit.") for one in found):
        # systemd applies limits as soon as it reads a changed unit: what changed the unit says it better.
        found = [one for one in found if one["id"] != "process.control_group"]
    for one in found:
        one["service"] = subject.service
    if subject.changing:
        return found, f"the unit is {subject.changing}"
    return found, "" if subject.recorded else "no facts were recorded at its commit; the next commit does"


def _damaged(service, error):
    new = new_finding(
        "release.damaged",
        str(error),
        [str(error)],
        "nothing can be compared, and the service cannot be deployed",
        f"restore the file; the releases are in {paths.releases(service)}",
        PERSON,
    )
    return dict(new, service=service)
