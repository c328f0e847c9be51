"""The systemd timer that looks at one service, made from its committed release."""

from __future__ import annotations

from .. import timers
from . import history


def units(release):
    """Units of the timer that a release declares, by name. Releases of earlier versions declare none."""
    service, declared = release["service"], release.get("watch")
    # The second counts from the end of a look: one that takes long is not followed by another at once.
    when = declared and "OnActiveSec={0:g}\nOnUnitInactiveSec={0:g}\nAccuracySec=1".format(declared["every"])
    name, command = f"servewright-watch-{service}", f"watch --service {service}"
    return timers.units(name, f"Look whether {service} answers", command, when)


def adopt(release):
    """Bring timer and history to what a release declares that has just passed its gates. Raises HostError."""
    wanted = units(release)
    if timers.differing(wanted):
        timers.apply(wanted)
    (history.begin if release.get("watch") else history.forget)(release["service"])
