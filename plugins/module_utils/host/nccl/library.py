"""The NCCL libraries that processes have loaded, told by content: two builds may give themselves one version."""

from __future__ import annotations

import hashlib
import os
import re

_NAME = re.compile(r"/libnccl\.so[.\d]*$")
_DELETED = " (deleted)"


def loaded(pids):
    """The libraries of some processes: a list of {"path", "sha256", "deleted", "pids"}, by path.

    A file is read once however many processes map it. sha256 is None where it could not be read; deleted tells that
    the file is gone or was replaced on disk, so that the next start would load another one.
    """
    found, digests = {}, {}
    for pid in pids:
        for path, device, inode, region in _mapped(pid):
            key = (device, inode)
            if key not in digests:
                digests[key] = _digest(pid, path, inode, region)
            entry = found.setdefault(
                (path, *key),
                {
                    "path": _without(path),
                    "sha256": digests[key],
                    "deleted": path.endswith(_DELETED),
                    "pids": [],
                },
            )
            entry["pids"].append(pid)
    return [found[key] for key in sorted(found)]


def differing(libraries, pids):
    """How the libraries of some processes differ: two lists of texts, what is wrong and what is worth knowing.

    Processes of one service that load different builds are wrong. Two builds in every one of them are not: an engine
    may load its own beside that of torch.
    """
    builds = {}
    for item in libraries:
        for pid in set(item["pids"]) & set(pids):
            builds.setdefault(pid, set()).add((item["sha256"] or item["path"], item["path"]))
    kinds = {}
    for pid in sorted(builds):
        kinds.setdefault(frozenset(build for build, _path in builds[pid]), pid)
    named = "; ".join(
        "pid {}: {}".format(pid, ", ".join(f"{path} (SHA-256 {build[:12]})" for build, path in sorted(builds[pid])))
        for pid in kinds.values()
    )
    wrong = [f"the ranks use different NCCL libraries: {named}: leave one in the environment"] if len(kinds) > 1 else []
    notes = [f"every rank has two NCCL libraries loaded: {named}" for kind in list(kinds)[:1] if len(kind) > 1]
    notes += [
        "{} was deleted or replaced on disk since pid {} loaded it: the next start loads another one".format(
            item["path"], item["pids"][0]
        )
        for item in libraries
        if item["deleted"]
    ]
    return wrong, notes


def _mapped(pid):
    """The NCCL files that a process maps: (path as the kernel shows it, device, inode, region)."""
    try:
        with open("/proc/%d/maps" % pid, encoding="utf-8", errors="surrogateescape") as stream:
            lines = [line.rstrip("\n").split(None, 5) for line in stream]
    except OSError:
        return []
    found = {}
    for line in lines:
        if len(line) == 6 and _NAME.search(_without(line[5])):
            region, _permissions, _offset, device, inode, path = line
            found.setdefault((path, device, inode), (path, device, inode, region))
    return list(found.values())


def _without(path):
    return path[: -len(_DELETED)] if path.endswith(_DELETED) else path


def _digest(pid, path, inode, region):
    """SHA-256 of a mapped file, in hexadecimal. The mapping itself leads to it, also when it has been deleted."""
    for place in ("/proc/%d/map_files/%s" % (pid, region), "/proc/%d/root%s" % (pid, path)):
        try:
            with open(place, "rb") as stream:
                if os.fstat(stream.fileno()).st_ino != int(inode):
                    continue
                digest = hashlib.sha256()
                for block in iter(lambda source=stream: source.read(1 << 20), b""):
                    digest.update(block)
                return digest.hexdigest()
        except OSError:
            continue
    return None
