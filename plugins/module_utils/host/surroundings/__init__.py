"""What a release was committed in: host, files and limits, recorded then and compared by drift."""

from __future__ import annotations

import os
from functools import cached_property, lru_cache

from .. import files, paths, systemd
from ..errors import DamagedError
from . import control_group, engine, host, model, nccl_conf, rights

SCHEMA = 1


class Now:
    """Facts of this host as they are; each is read once, and only when something asks for it."""

    def __init__(self):
        self.engine = lru_cache(maxsize=None)(engine.files_of)

    @cached_property
    def host(self):
        return host.facts()


def path(service):
    return os.path.join(paths.state(service), "surroundings.json")


def read(service):
    """What was recorded when the release was committed, or {} when nothing that can be compared was.

    Raises DamagedError.
    """
    found = files.read_sealed(path(service)) or {}
    return found if found.get("schema") == SCHEMA else {}


def record(release, number, restarted):
    """Record the facts of a release that has just been committed.

    A process that was not restarted still runs what it was started from, so what was recorded then stays.
    """
    service, now = release["service"], Now()
    try:
        before = {} if restarted else read(service)
    except DamagedError:
        before = {}
    kept = {name: before[name] for name in ("files", "process") if name in before}
    measured = {"host": now.host, **({} if len(kept) == 2 else started_from(release, now)), **kept}
    # Values of the manager's environment and of foreign files may be secret.
    files.write_sealed(path(service), {"schema": SCHEMA, "release": number, **measured}, mode=0o600)


def accept(service, names):
    """Take the host's facts of these names as they are now for those at commit."""
    recorded, now = read(service), Now()
    host_facts = {**recorded["host"], **{name: now.host[name] for name in names}}
    files.write_sealed(path(service), dict(recorded, host=host_facts), mode=0o600)


def started_from(release, now):
    """Facts that a process takes up when it starts."""
    state = systemd.show(paths.unit_name(release["service"]))
    found = of_files(release, now)
    found["nccl"] = {**found["nccl"], **engine.foreign_nccl(systemd.pids(state["ControlGroup"]), found["nccl"])}
    return {"files": found, "process": of_process(state)}


def of_files(release, now):
    return {
        **now.engine(release["venv"]),
        "model": model.files_of(release["model"]["path"]),
        "nccl_conf": nccl_conf.values(release),
    }


def of_process(state):
    return {**rights.of(state["MainPID"]), "control_group": control_group.limits(state["ControlGroup"])}
