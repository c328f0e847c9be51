"""Limits of a service's control group and of the slices above it, as the kernel has them."""

from __future__ import annotations

import os

ROOT = "/sys/fs/cgroup"
_CPUSET_V1 = "cpuset"
# Hierarchies of version 1 (version 2: none) and the files that limit there.
_LIMITS = (
    ("", ("memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max", "cpu.weight", "cpuset.cpus")),
    ("memory", ("memory.limit_in_bytes",)),
    ("pids", ("pids.max",)),
    ("cpu", ("cpu.cfs_quota_us", "cpu.shares")),
    (_CPUSET_V1, ("cpuset.cpus",)),
)
# Contents that limit nothing; the same as no file, which is there only while the controller is in use.
_UNLIMITED = ("max", "-1", "", str((1 << 63) - 4096))
# Weights have no content that means none: where the controller is not in use, it is as with these.
_WEIGHTS = {"cpu.weight": "100", "cpu.shares": "1024"}


def differing(old, new):
    """Files of `limits` that limit something else than before, sorted."""
    return [
        path
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path)
        and not (_unlimited(old.get(path)) and _unlimited(new.get(path)))
        and ((path in old and path in new) or not _only_in_both(path))
    ]


def _only_in_both(path):
    # systemd does not use cpuset of version 1: whoever made the group there took nothing away by it. Records of earlier
    # versions hold no weights.
    return os.path.basename(path) in _WEIGHTS or path.startswith(f"{ROOT}/{_CPUSET_V1}/")


def unlimited(path):
    """What to write to a file of `limits` for no limit."""
    return {"cpuset.cpus": "", "cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "-1"}.get(
        os.path.basename(path), "max"
    )


def _unlimited(content):
    return content is None or content.split(" ")[0] in _UNLIMITED


def limits(group):
    """{"<file>": "<content>"} of a group and of those above it; {} without a group."""
    found = {}
    while group not in ("", "/"):
        for hierarchy, names in _LIMITS:
            if not os.path.exists(os.path.join(ROOT, hierarchy, "cgroup.procs")):
                continue  # not this version
            for name in names:
                path = os.path.join(ROOT, hierarchy, group.strip("/"), name)
                try:
                    with open(path) as stream:
                        found[path] = stream.read().strip()
                except OSError:  # a controller that is not in use here
                    if name in _WEIGHTS:
                        found[path] = _WEIGHTS[name]
        group = os.path.dirname(group)
    return found
