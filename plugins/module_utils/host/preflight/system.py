"""The host: ports, space, and what servewright keeps there."""

from __future__ import annotations

import os

from .. import ports, proc, releases
from ..errors import DamagedError

FREE_BYTES = 64 << 20  # room for the release and the journals


def port(release, freed):
    """The port is free, or held by a service that will be stopped."""
    listen = release["listen"]
    found = []
    for pid in ports.holders(listen["host"], listen["port"]):
        if pid == 0 or proc.unit(pid) not in freed:
            who = proc.describe(pid) if pid else "a process that cannot be seen"
            found.append(
                (
                    "port %d of %s is held by %s" % (listen["port"], listen["host"], who),
                    "declare another listen.port, or end that process",
                )
            )
    return found


def space(release):
    """There is room for a release and the journals."""
    found = []
    for folder in ("/etc", "/var/lib"):
        state = os.statvfs(folder)
        if state.f_bavail * state.f_frsize < FREE_BYTES or state.f_favail < 100:
            found.append(
                (
                    "less than %d MiB or 100 files are free under %s" % (FREE_BYTES >> 20, folder),
                    "make room there",
                )
            )
    return found


def intact(release):
    """What servewright wrote for this service earlier is still what it wrote."""
    try:
        pointer = releases.committed(release["service"])
        if pointer is not None:
            releases.load(release["service"], pointer["release"])
    except DamagedError as error:
        return [(str(error), "roll back to a release that is whole, or restore the file")]
    return []
