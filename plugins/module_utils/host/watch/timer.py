"""The systemd timer that looks at one service, made from its committed release."""

from __future__ import annotations

import os

from .. import files, paths, quoting, timers
from ..errors import DamagedError
from . import history


def units(release):
    """Units of the timer that a release declares, by name. Releases of earlier versions declare none."""
    service, declared = release["service"], release.get("watch")
    # The second counts from the end of a look: one that takes long is not followed by another at once.
    every = declared and quoting.seconds(declared["every"])
    when = declared and f"OnActiveSec={every}\nOnUnitInactiveSec={every}\nAccuracySec=1"
    name, command = f"servewright-watch-{service}", f"watch --service {service}"
    return timers.units(name, f"Look whether {service} answers", command, when)


def written(release):
    """The units as the version that wrote them made them. One that kept no record of it wrote what is there."""
    known = _recorded(release["service"])
    return {name: text and (known.get(name) or timers.on_disk(name) or text) for name, text in units(release).items()}


def put(release):
    """Bring the timer to what a release declares, and keep what was written. Raises HostError."""
    wanted = units(release)
    if timers.differing(wanted):
        timers.apply(wanted)
    files.write_sealed(_record(release["service"]), wanted)


def adopt(release):
    """Bring timer and history to what a release declares that has just passed its gates. Raises HostError."""
    put(release)
    (history.begin if release.get("watch") else history.forget)(release["service"])


def _record(service):
    return os.path.join(paths.state(service), "watch.json")


def _recorded(service):
    try:
        return files.read_sealed(_record(service)) or {}
    except DamagedError:
        return {}
