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


def unreadable(name, paths):
    """Those of some paths that the user cannot read; for a user still to be made: that not everybody can."""
    return _refused(name, paths, lambda path: os.R_OK | (os.X_OK if os.path.isdir(path) else 0))


def unexecutable(name, paths):
    """Those of some programs that the user cannot run; for a user still to be made: that not everybody can."""
    return _refused(name, paths, lambda path: os.X_OK)


def unwritable(name, paths):
    """Those of some folders that the user cannot make a file in."""
    return _refused(name, paths, lambda path: os.W_OK | os.X_OK)


def _refused(name, paths, mode):
    try:
        entry = pwd.getpwnam(name)
        uid, gid, groups = entry.pw_uid, entry.pw_gid, os.getgrouplist(name, entry.pw_gid)
    except KeyError:
        uid, gid, groups = 65534, 65534, []
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # only a process of that user knows what access lists and mounts let it do
        try:
            os.close(reading)
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
            found = [str(number) for number, path in enumerate(paths) if not os.access(path, mode(path))]
            os.write(writing, ",".join([*found, "end"]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        answer = stream.read().split(",")
    os.waitpid(child, 0)
    return [paths[int(number)] for number in answer[:-1]] if answer[-1] == "end" else list(paths)
