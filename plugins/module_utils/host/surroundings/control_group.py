"""Limits of a service's control group and of the slices above it, as the kernel has them."""

from __future__ import annotations

import os

ROOT = "/sys/fs/cgroup"
# Hierarchies of version 1 (version 2: none) and the files that limit there.
_LIMITS = (
    ("", ("memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max", "cpuset.cpus")),
    ("memory", ("memory.limit_in_bytes",)),
    ("pids", ("pids.max",)),
    ("cpu", ("cpu.cfs_quota_us",)),
    ("cpuset", ("cpuset.cpus",)),
)
# Contents that limit nothing; the same as no file, which is there only while the controller is in use.
_UNLIMITED = ("max", "-1", "", str((1 << 63) - 4096))


def differing(old, new):
    """Files of `limits` that limit something else than before, sorted."""
    return [
        path
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path)
        and not (_unlimited(old.get(path)) and _unlimited(new.get(path)))
        and not (path.endswith("cpuset.cpus") and not (path in old and path in new))
    ]


def _unlimited(content):
    return content is None or content.split(" ")[0] in _UNLIMITED


def limits(group):
    """{"<file>": "<content>"} of a group and of those above it; {} without a group."""
    found = {}
    while group not in ("", "/"):
        for hierarchy, names in _LIMITS:
            for name in names:
                path = os.path.join(ROOT, hierarchy, group.strip("/"), name)
                try:
                    with open(path) as stream:
                        found[path] = stream.read().strip()
                except OSError:
                    continue  # not this version, or a controller that is not in use here
        group = os.path.dirname(group)
    return found
