"""Shared libraries that processes have mapped: replaced under them, or taken from elsewhere than the engine's own."""

from __future__ import annotations

import os
import re

from . import proc

# Libraries that an engine's environment brings itself: one from elsewhere is another version than the declared.
_OWN = re.compile(r"^lib(nccl|torch|torch_cuda|c10|c10_cuda)(-[\w.]+)?\.so(\.[\d.]+)?$")
LIBRARY = re.compile(r"\.so(\.[\w.]+)?$")  # versions have letters, too: libcrypto.so.1.1.1k
# Variables that tell a process where to take libraries from.
_NAMES_LIBRARIES = re.compile(r"^LD_|_SO_|_PLUGIN|LIBRARY|^PYTHON")
# Where a process maps files that are no libraries of its engine, or that it made itself.
_NOT_FILES = ("/dev/", "/memfd:", "/SYSV", "/proc/", "/sys/", "[")


def mapped(pid):
    """Paths of the shared libraries that a process maps, and the same for those removed or replaced since."""
    libraries = [
        mapping
        for mapping in proc.mapped(pid)
        if LIBRARY.search(mapping.path) and not mapping.path.startswith(_NOT_FILES)
    ]
    return tuple({one.path for one in libraries if one.deleted is gone} for gone in (False, True))


def foreign(libraries, venv, environment):
    """Of some libraries those that the engine should bring itself, and that come from elsewhere without a declaration.

    Elsewhere: not below the environment's folder (or what it links to), nor below a folder or file that a declared
    variable names (LD_PRELOAD, LD_LIBRARY_PATH, VLLM_NCCL_SO_PATH, ...).
    """
    values = [value for name, value in environment.items() if _NAMES_LIBRARIES.search(name)]
    named = [part for value in values for part in re.split(r"[:\s]", value) if part.startswith("/")]
    allowed = [os.path.realpath(top).rstrip("/") for top in (venv, *named)] + [venv.rstrip("/")]
    return sorted(
        library
        for library in libraries
        if _OWN.match(os.path.basename(library))
        and not any(library == top or library.startswith(top + "/") for top in allowed)
    )


def differences(release, pids):
    """Differences of the processes `pids` from a release: a list of {"field", "declared", "running", "pid", "process"}.

    A replaced library counts when it is the environment's own: then what runs is no longer what is on disk. A system
    library that an upgrade replaced is no fault of the release.
    """
    venv, found = release["venv"], []
    tops = (venv.rstrip("/") + "/", os.path.realpath(venv) + "/")
    for pid in pids:
        there, gone = mapped(pid)
        for library in sorted(name for name in gone if name.startswith(tops)):
            found.append(_difference(pid, library, "as on disk", library + " (replaced since the start)"))
        for library in foreign(there, venv, release["environment"]):
            found.append(_difference(pid, library, "from " + venv, library))
    return found


def _difference(pid, library, declared, running):
    return {
        "field": "library " + os.path.basename(library),
        "declared": declared,
        "running": running,
        "pid": pid,
        "process": proc.name(pid),
    }
