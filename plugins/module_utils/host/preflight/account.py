"""The service's user, and the folders it writes to."""

from __future__ import annotations

import os
import pwd
import re

from .. import users
from ..surroundings import host
from .check import fatal, warning

# Each tool ignores the others' variables. An own HF_HOME may be a store that is only read.
CACHES = (
    "HOME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "NUMBA_CACHE_DIR",
    "OUTLINES_CACHE_DIR",
    "VLLM_CACHE_ROOT",
    "CUDA_CACHE_PATH",
    "TMPDIR",
)
ALWAYS_WRITABLE = ("/tmp", "/var/tmp", "/dev/shm")  # in the unit's sandbox (ProtectSystem=strict, PrivateTmp=yes)
LAST_SYSTEM_UID = 999  # systemd's and Debian's own, when /etc/login.defs says nothing


def user(subject):
    """The user is of the system range, or logind leaves the shared memory of login users alone."""
    name = subject.release["user"]
    try:
        uid = pwd.getpwnam(name).pw_uid
    except KeyError:
        return []  # the first deploy makes a system user
    if uid <= _last_system_uid() or host.logind()["RemoveIPC"].lower() in ("no", "false", "off", "0"):
        return []
    return [
        fatal(
            f"user {name} ({uid}) is a login user: logind deletes its shared memory when its last session ends, "
            "which breaks a running engine",
            f"declare a system user (uid up to {_last_system_uid()}), or set RemoveIPC=no in logind.conf",
            uid=uid,
        )
    ]


def _last_system_uid():
    try:
        with open("/etc/login.defs") as stream:
            match = re.search(r"^\s*SYS_UID_MAX\s+(\d+)", stream.read(), re.MULTILINE)
    except OSError:
        match = None
    return int(match.group(1)) if match else LAST_SYSTEM_UID


def caches(subject):
    """HOME and every cache folder can be written by the user, inside the unit's sandbox."""
    release, found, mine = subject.release, [], []
    for variable in CACHES:
        path = release["environment"].get(variable)
        if not path:
            continue
        if _below(path, release["cache"]):
            mine.append(path)
        elif not any(_below(path, top) for top in ALWAYS_WRITABLE):
            message = f"{variable}={path} cannot be written in the unit, which sees the system read-only"
            found.append(fatal(message, f"leave it out; the default is below {release['cache']}", variable=variable))
    hub = release["environment"].get("HF_HOME", "")
    if hub and not _below(hub, release["cache"]):
        found.append(warning(f"HF_HOME={hub} is read-only in the unit", "leave it out, unless it is only read"))
    there = [path for path in dict.fromkeys([*mine, *_subfolders(release["cache"])]) if os.path.isdir(path)]
    # systemd gives the folder to the user at each start, and what is in it where the folder was another's (systemd 252,
    # src/core/chown-recursive.c: it looks no further into one that is right).
    if not there or os.stat(release["cache"]).st_uid != _uid(release["user"]):
        return found
    found += [
        fatal(f"user {release['user']} cannot write to {path}", f"chown -R {release['user']}: {path}, or move it away")
        for path in users.unwritable(release["user"], [path for path in there if path != release["cache"]])
    ]
    return found


def _subfolders(folder):
    return [entry.path for entry in os.scandir(folder)] if os.path.isdir(folder) else []


def _below(path, top):
    path = os.path.normpath(path)
    return path == top or path.startswith(top + "/")


def _uid(name):
    """The number of a user; None: the deploy makes it."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
