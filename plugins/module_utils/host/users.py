"""The system user of a service."""

from __future__ import annotations

import os
import pwd

from .commands import run


def ensure(name):
    """Make a system user without home, shell or password, when there is none of that name.

    A user of the system range, because logind (RemoveIPC=) deletes the shared memory of login users when their
    last session ends.
    """
    try:
        pwd.getpwnam(name)
        return False
    except KeyError:
        pass
    run(
        [
            "useradd",
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
            "--shell",
            "/usr/sbin/nologin",
            name,
        ]
    )
    return True


def can_read(name, path):
    """True when the user can read a path and enter all folders above it; for a user still to be made: anybody can."""
    try:
        entry = pwd.getpwnam(name)
        uid, gid, groups = entry.pw_uid, entry.pw_gid, os.getgrouplist(name, entry.pw_gid)
    except KeyError:
        uid, gid, groups = 65534, 65534, []
    child = os.fork()
    if child == 0:  # only a process of that user knows what access lists and mounts let it do
        code = 1
        try:
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
            code = 0 if os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)) else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
