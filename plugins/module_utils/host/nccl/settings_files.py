"""NCCL's own settings files, whose values no process environment shows."""

from __future__ import annotations

import os
import pwd

SYSTEM = "/etc/nccl.conf"


def found(environment, user):
    """Settings of the files that NCCL reads for a process: name to (value, path). The first file with a name wins.

    `environment` is that of the process, `user` the name of its user. Source: NCCL 2.30.7 src/misc/param.cc.
    """
    own = environment.get("NCCL_CONF_FILE") or os.path.join(_home(user), ".nccl.conf")
    settings = {}
    for path in (own, SYSTEM):
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                lines = stream.read().splitlines()
        except OSError:
            continue
        for line in lines:
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                settings.setdefault(name, (value, path))
    return settings


def _home(user):
    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError:
        return "/"
