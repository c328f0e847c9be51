"""What can go wrong on a host, in the terms of the one who has to mend it."""

from __future__ import annotations


class HostError(Exception):
    """A command cannot go on; the message says why and what to do. Nothing running was touched."""


class DamagedError(HostError):
    """A file of servewright's own is cut short or was edited by hand."""


class BusyError(HostError):
    """Another run holds the service."""


class RefusedError(HostError):
    """What is declared cannot be had on this host."""


class StepError(Exception):
    """A step of a transaction failed, so the transaction rolls back.

    `diagnosis` are log lines, `cause` is what diagnosis.of gives. `survivors` are processes that outlived SIGKILL: then
    nothing may be started on top of them.
    """

    def __init__(self, message, diagnosis=None, survivors=(), cause=None):
        super().__init__(message)
        self.cause = cause
        self.diagnosis = diagnosis or []
        self.survivors = list(survivors)
