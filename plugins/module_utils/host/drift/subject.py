"""A service as drift looks at it: its committed release, its unit, its process, and what was recorded at commit."""

from __future__ import annotations

import os
from functools import cached_property

from .. import files, gpus, paths, releases, surroundings, systemd
from ..errors import DamagedError, HostError


class Host(surroundings.Now):
    """What all services of one host share in one look at it."""

    @cached_property
    def gpus(self):
        """GPUs by index and the processes that hold memory, or the error that nvidia-smi gave."""
        try:
            return gpus.query(), gpus.clients(), None
        except HostError as error:
            return {}, [], str(error)


class Subject:
    """One service with a committed release. Raises DamagedError when its records cannot be trusted."""

    def __init__(self, service, host):
        pointer = releases.committed(service)
        self.service = service
        self.host = host
        self.number = pointer["release"]
        self.unit = paths.unit_name(service)
        self.folder = releases.folder(service, self.number)
        self.release = files.read_sealed(os.path.join(self.folder, "release.json"))
        if self.release is None:
            raise DamagedError(f"release {self.number} of {service} is committed and its release.json is missing")
        self.state = systemd.show(self.unit)
        self.recorded = surroundings.read(service)

    @property
    def pid(self):
        return self.state["MainPID"] if systemd.active(self.state) else 0

    @cached_property
    def changing(self):
        """What somebody has systemd do with the unit at this moment, or ""."""
        state = self.state
        begins = state["ActiveState"] == "activating" and state["SubState"] != "auto-restart" and not state["NRestarts"]
        if begins or systemd.awaiting(self.unit, state):
            return "being started"
        return "being stopped" if systemd.stopping(self.unit, state) else ""

    @cached_property
    def files(self):
        return surroundings.of_files(self.release, self.host)

    @cached_property
    def displaced_by(self):
        """The service that runs on the same GPUs in its place, or "": a deploy disables what it displaces."""
        if systemd.active(self.state) or self.state["UnitFileState"] != "disabled" or not self.release["gpus"]:
            return ""
        for other in paths.services():
            pointer = releases.committed(other) if other != self.service else None
            if pointer is None or not set(releases.load(other, pointer["release"])["gpus"]) & set(self.release["gpus"]):
                continue
            if systemd.show(paths.unit_name(other))["UnitFileState"] == "enabled":
                return other
        return ""
