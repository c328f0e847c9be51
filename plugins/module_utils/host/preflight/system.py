"""The host: ports, space, and what servewright keeps there."""

from __future__ import annotations

import os

from .. import ports, proc, releases
from ..errors import DamagedError
from .check import fatal

FREE_BYTES = 64 << 20  # room for the release and the journals


def port(subject):
    """The port is free, or held by what will be ended."""
    listen = subject.release["listen"]
    found = []
    for pid in ports.holders(listen["host"], listen["port"]):
        if pid == 0 or not subject.ends(pid):
            who = proc.describe(pid) if pid else "a process that cannot be seen"
            found.append(
                fatal(
                    "port %d of %s is held by %s" % (listen["port"], listen["host"], who),
                    "declare another listen.port, or end that process",
                )
            )
    return found


def space(subject):
    """There is room for a release and the journals."""
    found = []
    for folder in ("/etc", "/var/lib"):
        state = os.statvfs(folder)
        if state.f_bavail * state.f_frsize < FREE_BYTES or state.f_favail < 100:
            found.append(
                fatal(
                    "less than %d MiB or 100 files are free under %s" % (FREE_BYTES >> 20, folder),
                    "make room there",
                )
            )
    return found


def intact(subject):
    """What servewright wrote for this service earlier is still what it wrote."""
    service = subject.release["service"]
    try:
        pointer = releases.committed(service)
        if pointer is not None:
            releases.load(service, pointer["release"])
    except DamagedError as error:
        return [fatal(str(error), "roll back to a release that is whole, or restore the file")]
    return []
