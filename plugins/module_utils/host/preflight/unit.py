"""The unit: its name is ours, systemd accepts it, nothing changes it from outside."""

from __future__ import annotations

import os
import re
import tempfile

from .. import paths, releases, systemd
from . import unit_override
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
                "give the service a name that no unit has; while that unit serves, everything else can be checked",
            )
        ]
    if systemd.ours(release["service"]) is None and state["LoadState"] == "loaded":
        return [fatal("a unit {} exists at {}".format(unit, state["FragmentPath"]), "give the service another name")]
    return []


def drop_ins(subject):
    """No drop-in changes the unit behind its release's back; systemd merges them from every folder."""
    release, found = subject.release, []
    for path in unit_override.merged(release["service"]):
        changes = unit_override.settings(path)
        hard = [
            fatal(f"{path} sets {name}={changes['Service.' + name]}, which {what}", "take that line out of it")
            for name, values, what, only_gpus in unit_override.FORBIDDEN
            if changes.get("Service." + name, "").lower() in values and (release["gpus"] or not only_gpus)
        ]
        found += hard or [
            warning(f"{path} changes the unit", "declare what it does and remove it; gates see its effect")
        ]
    return found


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
    unit, origin = unit_override.effective(release)
    window, delay = (unit_override.seconds(unit[name]) for name in ("Unit.StartLimitIntervalSec", "Service.RestartSec"))
    burst = int(unit["Unit.StartLimitBurst"])
    repair = unit_override.repair(origin, *_LIMITER)
    if not burst or window <= burst * delay:
        return [
            fatal(
                "StartLimitIntervalSec=%s can never trip: %d starts take at least %g s"
                % (unit["Unit.StartLimitIntervalSec"], burst, burst * delay),
                repair,
            )
        ]
    slow = burst * (delay + release["verify"]["load_timeout"])
    if window < slow:
        message = "the restart limiter trips within %g s, but %d starts that die at the end of a load take %g s"
        return [warning(message % (window, burst, slow), repair)]
    return []


_LIMITER = ("Unit.StartLimitIntervalSec", "Unit.StartLimitBurst", "Service.RestartSec")


def timeouts(subject):
    """The wait for free GPUs ends before systemd's start timeout, drop-ins included. The rest is validated."""
    release = subject.release
    unit, origin = unit_override.effective(release)
    start, wait = unit_override.seconds(unit["Service.TimeoutStartSec"]), release["limits"]["gpu_wait"]
    if release["gpus"] and start and start <= wait:  # 0 is infinity, too
        repair = unit_override.repair(origin, "Service.TimeoutStartSec")
        return [fatal(f"TimeoutStartSec={start:g} ends the wait for free GPUs, which may take {wait:g} s", repair)]
    return []
