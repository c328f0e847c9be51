"""What a check gets, and what it gives."""

from __future__ import annotations

import functools

from .. import gpus, leftovers, paths, proc

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
    def gpus(self):
        """The host's GPUs as nvidia-smi lists them, asked once for all checks. Raises HostError."""
        return gpus.query()


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
