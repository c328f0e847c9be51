"""Drop-ins: what others merge into the unit behind its release's back."""

from __future__ import annotations

import glob
import os
import re

from .. import difference, paths, systemd

FOLDERS = ("/usr/lib", "/usr/local/lib", "/run", "/etc")
# Settings of a drop-in that no engine survives: name, values, what they do, whether only on GPUs. systemd.exec(5),
# systemd.resource-control(5); NixOS/nixpkgs#331069.
FORBIDDEN = (
    ("PrivateDevices", ("yes", "true", "on", "1"), "hides the GPUs", True),
    ("DevicePolicy", ("closed", "strict"), "hides the GPUs", True),
    ("ProtectClock", ("yes", "true", "on", "1"), "turns on a list of devices without the GPUs", True),
    ("MemoryDenyWriteExecute", ("yes", "true", "on", "1"), "forbids the code that kernels are compiled to", False),
    ("PrivateNetwork", ("yes", "true", "on", "1"), "keeps every client away", False),
)
_UNITS_OF_TIME = {"": 1, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600, "hr": 3600, "ms": 0.001, "d": 86400}


def drop_ins(service):
    """Paths of the drop-ins of a service's unit, in the order systemd reads them."""
    unit = paths.unit_name(service)
    found = systemd.show(unit)["DropInPaths"].split()
    there = [path for top in FOLDERS for path in glob.glob(f"{top}/systemd/system/{unit}.d/*.conf")]
    return found + sorted((path for path in there if path not in found), key=os.path.basename)


def settings(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return difference.unit_settings(stream.read())
    except OSError:
        return {}


def effective(release):
    """Settings of the unit with its drop-ins on top: (name to value, name to the drop-in it comes from)."""
    values, origin = difference.unit_settings(release["unit"]), {}
    for path in drop_ins(release["service"]):
        for name, value in settings(path).items():
            values[name], origin[name] = value, path
    return values, origin


def repair(origin, *names):
    """What to do about settings of the effective unit that are wrong: correct the drop-ins they come from."""
    whose = ", ".join(sorted({origin[name] for name in names if name in origin}))
    return f"correct {whose}" if whose else "this is a defect of the unit template"


def seconds(text):
    """A time span of systemd in seconds, or None for `infinity`."""
    if text.strip() == "infinity":
        return None
    return sum(float(number) * _UNITS_OF_TIME.get(unit, 1) for number, unit in re.findall(r"([\d.]+)\s*([a-z]*)", text))
