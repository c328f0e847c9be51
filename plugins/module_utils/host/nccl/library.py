"""The NCCL libraries that processes have loaded, told by content: two builds may give themselves one version."""

from __future__ import annotations

import hashlib
import os
import re

from .. import proc

_NAME = re.compile(r"/libnccl\.so[.\d]*$")


def loaded(pids):
    """The libraries of some processes: a list of {"path", "sha256", "deleted", "pids"}, by path.

    A file is read once however many processes map it. sha256 is None where it could not be read; deleted tells that
    the file is gone or was replaced on disk, so that the next start would load another one.
    """
    found, digests = {}, {}
    for pid in pids:
        for mapping in proc.mapped(pid):
            if not _NAME.search(mapping.path):
                continue
            key = (mapping.device, mapping.inode)
            if key not in digests:
                digests[key] = _digest(pid, mapping)
            entry = found.setdefault(
                (mapping.path, mapping.deleted, *key),
                {"path": mapping.path, "sha256": digests[key], "deleted": mapping.deleted, "pids": []},
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


def _digest(pid, mapping):
    """SHA-256 of a mapped file, in hexadecimal. The mapping itself leads to it, also when it has been deleted."""
    for place in ("/proc/%d/map_files/%s" % (pid, mapping.region), "/proc/%d/root%s" % (pid, mapping.path)):
        try:
            with open(place, "rb") as stream:
                if os.fstat(stream.fileno()).st_ino != int(mapping.inode):
                    continue
                digest = hashlib.sha256()
                for block in iter(lambda source=stream: source.read(1 << 20), b""):
                    digest.update(block)
                return digest.hexdigest()
        except OSError:
            continue
    return None
