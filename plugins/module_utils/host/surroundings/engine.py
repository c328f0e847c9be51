"""The files of an engine's environment, cheap enough for every hour: names, sizes and times, not contents."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re

from .. import proc

_NCCL = re.compile(r"libnccl\.so(\.\d+)*$")


def files_of(venv):
    """What an environment consists of: {"engine": ..., "single": ..., "nccl": ...}, from one walk.

    `engine` has a digest of each folder: {"bin": ..., "<package in site-packages>": ...}. It covers names, sizes and
    times of modification, and the content of RECORD files, which hold the digests that were installed. `single` has the
    size and time of each file beside the packages (modules, .pth files) and of pyvenv.cfg, and `nccl` the digest of the
    content of each libnccl, by path. Byte code is left out, because it is written when somebody imports a module.
    """
    found = {"engine": {}, "single": {}, "nccl": {}}
    for name, path in _parts(venv):
        name = name.encode("utf-8", "backslashreplace").decode()
        if os.path.isdir(path):
            found["engine"][name] = _digest(path, found["nccl"])
        else:
            with contextlib.suppress(OSError):  # it went away
                state = os.lstat(path)
                found["single"][name] = [state.st_size, state.st_mtime_ns]
    return found


def foreign_nccl(pids, known):
    """Content digest of every libnccl that processes map and that is none of the known paths, by path."""
    paths = {mapping.path for pid in pids for mapping in proc.mapped(pid) if _NCCL.search(mapping.path)}
    return {path: content(path) for path in sorted(paths - {os.path.realpath(path) for path in known})}


def _digest(folder, nccl):
    """Digest of a folder without its libnccl, whose contents go to `nccl`."""
    digest = hashlib.sha256()
    for short, entry in _files(folder):
        if _NCCL.search(entry.name):
            nccl[entry.path] = content(entry.path)
            continue
        state = entry.stat(follow_symlinks=False)
        digest.update(f"{short}\0{state.st_size}\0{state.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
        if entry.name == "RECORD":
            digest.update(content(entry.path).encode())
    return digest.hexdigest()


def _parts(venv):
    """(name, folder or file) of what an environment consists of."""
    parts = [(name, os.path.join(venv, name)) for name in ("bin", "pyvenv.cfg")]
    for library in ("lib", "lib64"):
        top = os.path.join(venv, library)
        if os.path.islink(top) or not os.path.isdir(top):
            continue
        for python in sorted(os.listdir(top)):
            packages_folder = os.path.join(top, python, "site-packages")
            if os.path.isdir(packages_folder):
                parts += [(name, os.path.join(packages_folder, name)) for name in sorted(os.listdir(packages_folder))]
    return [(name, path) for name, path in parts if name != "__pycache__"]


def _files(folder):
    """(path relative to the folder, directory entry) of the files below a folder, in a fixed order."""
    pending = [("", folder)]
    while pending:
        prefix, current = pending.pop()
        try:
            with os.scandir(current) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            continue  # it went away, or is no folder any more; its files are missing from the digest
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append((prefix + entry.name + "/", entry.path))
            elif not entry.name.endswith(".pyc"):
                yield prefix + entry.name, entry


def content(path):
    """Digest of a file's content."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return digest.hexdigest()
