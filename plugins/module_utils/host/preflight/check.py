"""What a check gets, and what it gives."""

from __future__ import annotations

import functools

from .. import gpus, leftovers, paths, proc
from ..errors import HostError

FATAL, WARNING, OK = "fatal", "warning", "ok"


class Subject:
    """A release that is to start, and the names of the units (`freed`) that will have been stopped by then."""

    def __init__(self, release, displaced=()):
        self.release = release
        self.freed = {paths.unit_name(service) for service in (release["service"], *displaced)}

    def ends(self, pid):
        """True for a process that will have been ended before the release starts."""
        return proc.unit(pid) in self.freed or pid in self._strays

    @functools.cached_property
    def _strays(self):
        return leftovers.strays(self.release["service"], self.release["user"])

    @functools.cached_property
    def _gpus(self):
        """The host's GPUs, asked once for all checks, and why they could not be listed."""
        try:
            return gpus.query(), ""
        except HostError as error:
            return {}, str(error)

    @property
    def gpus(self):
        """The host's GPUs as gpus.query gives them; empty when they could not be listed."""
        return self._gpus[0]

    @property
    def gpu_failure(self):
        """Why the GPUs could not be listed, or ""."""
        return self._gpus[1]

    @property
    def claimed(self):
        """The claimed GPUs that are there."""
        return {index: self.gpus[index] for index in self.release["gpus"] if index in self.gpus}

    @functools.cached_property
    def gpu_health(self):
        """What nvidia-smi says of each GPU beyond what a claim needs, by index."""
        return gpus.health() if self.gpus else {}

    @functools.cached_property
    def gpu_links(self):
        """How the GPUs are linked, as nvidia-smi prints it."""
        return gpus.topology("-m")


def fatal(message, repair="", **evidence):
    """What would keep the release from starting or from serving right: the change is refused."""
    return _finding(FATAL, message, repair, evidence)


def warning(message, repair="", **evidence):
    """What may be wrong, or what could not be looked at."""
    return _finding(WARNING, message, repair, evidence)


def passed(message, **evidence):
    """What was seen to be right, where that is worth saying."""
    return _finding(OK, message, "", evidence)


def _finding(severity, message, repair, evidence):
    return {
        "severity": severity,
        "passed": severity == OK,
        "message": message,
        "evidence": evidence,
        "repair": repair,
    }
