"""Drop-ins of a unit in every folder that systemd reads, also those it has not read yet."""

from __future__ import annotations

import glob
import os

# Highest priority first: systemd.unit(5), "Unit File Load Path", and lookup-paths.c for the control folders.
FOLDERS = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
# Cumulative settings: each line adds, and an empty one resets. Of all others the last line counts.
LISTS = frozenset(
    (
        *("After", "Before", "BindsTo", "Conflicts", "DeviceAllow", "Documentation", "EnvironmentFile"),
        *("ExecCondition", "ExecReload", "ExecStart", "ExecStartPost", "ExecStartPre", "ExecStop", "ExecStopPost"),
        *("InaccessiblePaths", "LoadCredential", "PassEnvironment", "ReadOnlyPaths", "ReadWritePaths", "Requires"),
        *("AmbientCapabilities", "CapabilityBoundingSet"),
        *("SystemCallFilter", "TemporaryFileSystem", "UnsetEnvironment", "Wants", "BindPaths", "BindReadOnlyPaths"),
    )
)


def of_unit(unit):
    """Paths of the drop-ins that are meant for this unit alone, in the order of their names, which is systemd's."""
    return _in_order([unit + ".d"])


def of_many():
    """Paths of the drop-ins that are meant for every service, or for all whose names begin alike."""
    return _in_order(["service.d", "*-.service.d"])


def merged(unit):
    """Paths of the drop-ins that systemd merges into a unit, in its order; of files of one name it reads one."""
    own = [path for path in _in_order([unit + ".d", "*-.service.d"]) if applies(path, unit)]
    found = {}
    for path in own + _in_order(["service.d"]):
        found.setdefault(os.path.basename(path), path)
    return [found[name] for name in sorted(found)]


def applies(path, unit):
    """True when a drop-in changes this unit, going by the name of its folder."""
    folder = os.path.basename(os.path.dirname(path))
    return folder in ("service.d", unit + ".d") or (
        folder.endswith("-.service.d") and unit.startswith(folder[: -len(".service.d")])
    )


def _in_order(patterns):
    found, seen = {}, set()
    for folder in FOLDERS:
        for pattern in patterns:
            for path in sorted(glob.glob(os.path.join(folder, pattern, "*.conf"))):
                real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
                if real not in seen:  # /lib is a link to /usr/lib on most systems
                    seen.add(real)
                    found.setdefault(os.path.basename(path), []).append(path)
    return [path for name in sorted(found) for path in found[name]]


def settings(text):
    """Settings of a unit file or drop-in: a list of (line number, section, name, value); continued lines are joined."""
    found, section, pending, begin = [], "", "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not pending and line.lstrip().startswith(("#", ";")):
            continue
        begin = begin if pending else number
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1] + " "
            continue
        line, pending = pending.strip(), ""
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line:
            name, _equals, value = line.partition("=")
            found.append((begin, section, name.strip(), value.strip()))
    return found


def winning(texts):
    """Which lines win: `texts` are (path, text) in systemd's order; gives (path, line number, "Name=value").

    Of two files with one name only that of the first folder is read; both may be given, in that order.
    """
    effective = {}
    names = set()
    for path, text in texts:
        if os.path.basename(path) in names:
            continue
        names.add(os.path.basename(path))
        for number, section, name, value in settings(text):
            if name == "Environment":
                variable = value.lstrip("\"'").partition("=")[0]
                if not value:
                    effective = {key: line for key, line in effective.items() if key[:2] != (section, name)}
                effective[(section, name, variable)] = (path, number, f"{name}={value}")
            elif name in LISTS and value:
                effective[(section, name, path, number)] = (path, number, f"{name}={value}")
            else:
                effective = {key: line for key, line in effective.items() if key[:2] != (section, name)}
                effective[(section, name)] = (path, number, f"{name}={value}")
    return list(effective.values())
