"""The unit: its name is ours, systemd accepts it, nothing changes it from outside."""

from __future__ import annotations

import os
import re
import tempfile

from .. import difference, paths, releases, systemd
from .check import fatal, warning


def unit_is_ours(subject):
    """The unit of that name is free or ours, not masked."""
    release = subject.release
    unit = paths.unit_name(release["service"])
    state = systemd.show(unit)
    if state["LoadState"] == "masked" or state["UnitFileState"].startswith("masked"):
        return [fatal(f"{unit} is masked", f"somebody masked it on purpose; 'systemctl unmask {unit}' if that is over")]
    if systemd.ours(release["service"]) is False:
        return [
            fatal(
                "{} exists and was not written by servewright".format(paths.unit_file(release["service"])),
                "give the service another name, or stop and remove that unit first",
            )
        ]
    if systemd.ours(release["service"]) is None and state["LoadState"] == "loaded":
        return [fatal("a unit {} exists at {}".format(unit, state["FragmentPath"]), "give the service another name")]
    return []


def drop_ins(subject):
    """No drop-in changes the unit behind its release's back; systemd merges them from every folder."""
    found = systemd.show(paths.unit_name(subject.release["service"]))["DropInPaths"].split()
    return [
        warning(f"{path} changes the unit", "declare what it does and remove it; gates see its effect")
        for path in found
    ]


def unit_text(subject):
    """systemd accepts the unit, under its real name."""
    release = subject.release
    with tempfile.TemporaryDirectory(prefix="servewright-") as folder:
        path = os.path.join(folder, paths.unit_name(release["service"]))
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(releases.unit_text(release, 0))
        complaints = systemd.verify_unit(path)
    # The user and host.pyz come with the first deploy.
    return [
        fatal(line.replace(path, paths.unit_name(release["service"])), "this is a defect of the unit template")
        for line in complaints
        if not re.search(r"host\.pyz|is not executable|Failed to (resolve|determine) user", line)
    ]


def limiter(subject):
    """The restart limiter can trip, also when every start dies only after a whole load."""
    release = subject.release
    unit = difference.unit_settings(release["unit"])
    window = float(unit["Unit.StartLimitIntervalSec"])
    need = release["limits"]["restart_burst"] * release["limits"]["restart_delay"]
    if window <= need:
        return [
            fatal(
                "StartLimitIntervalSec=%g can never trip: %d starts take at least %g s"
                % (window, release["limits"]["restart_burst"], need),
                "this is a defect of the unit template",
            )
        ]
    return []
