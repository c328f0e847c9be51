"""The host: space, and what servewright keeps there."""

from __future__ import annotations

import os

from .. import releases
from ..errors import DamagedError
from .check import fatal

FREE_BYTES = 64 << 20  # room for the release and the journals


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
    """What servewright wrote for this service earlier is still what it wrote, so that it can be gone back to."""
    service = subject.release["service"]
    try:
        pointer = releases.committed(service)
        if pointer is not None:
            releases.startable(service, pointer["release"])
    except DamagedError as error:
        return [fatal(str(error), "restore the file; 'servewright drift' says more")]
    return []
