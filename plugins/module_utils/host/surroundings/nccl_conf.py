"""NCCL values that reach a service from files, past its environment.

NCCL reads NCCL_CONF_FILE, or without it ~/.nccl.conf of the process's user, then /etc/nccl.conf, and adds the
variables that are not set yet (NCCL 2.30.7, src/misc/param.cc, initEnvFunc).
"""

from __future__ import annotations

import os
import pwd

from .. import files

SYSTEM = "/etc/nccl.conf"


def values(release):
    """{"<name>": ["<value>", "<file>"]} of the values that the environment does not already set."""
    found = {}
    for path in (_user_file(release), SYSTEM):
        text = (files.read_bytes(path) or b"").decode("utf-8", "replace") if path else ""
        for line in text.splitlines():
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#") and name not in release["environment"]:
                found.setdefault(name, [value, path])
    return found


def _user_file(release):
    named = release["environment"].get("NCCL_CONF_FILE")
    if named:
        return named
    try:
        return os.path.join(pwd.getpwnam(release["user"]).pw_dir, ".nccl.conf")
    except KeyError:
        return None
