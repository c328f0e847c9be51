"""The files of an engine's environment, cheap enough for every hour: names, sizes and times, not contents."""

from __future__ import annotations

import hashlib
import os
import re

_NCCL = re.compile(r"libnccl\.so(\.\d+)*$")


def packages(venv):
    """Digest of each part of an environment: {"bin": ..., "<package in site-packages>": ...}.

    A digest covers names, sizes and times of modification, and the content of RECORD files, which hold the digests
    that were installed. Byte code is left out, because it is written when somebody imports a module.
    """
    found = {}
    for name, folder in _parts(venv):
        digest = hashlib.sha256()
        for path, entry in _files(folder):
            state = entry.stat(follow_symlinks=False)
            digest.update(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
            if entry.name == "RECORD":
                digest.update(_content(entry.path).encode())
        found[name.encode("utf-8", "backslashreplace").decode()] = digest.hexdigest()
    return found


def nccl_libraries(venv):
    """Content digest of every libnccl of an environment, by path."""
    found = {}
    for name, folder in _parts(venv):
        if name == "nvidia" or "nccl" in name:
            for path, entry in _files(folder, wanted=_NCCL.search):
                found[os.path.join(folder, path)] = _content(entry.path)
    return found


def _parts(venv):
    """(name, folder or file) of what an environment consists of."""
    parts = [("bin", os.path.join(venv, "bin"))]
    for library in ("lib", "lib64"):
        top = os.path.join(venv, library)
        if os.path.islink(top) or not os.path.isdir(top):
            continue
        for python in sorted(os.listdir(top)):
            packages_folder = os.path.join(top, python, "site-packages")
            if os.path.isdir(packages_folder):
                parts += [(name, os.path.join(packages_folder, name)) for name in sorted(os.listdir(packages_folder))]
    return [(name, path) for name, path in parts if os.path.isdir(path) and name != "__pycache__"]


def _files(folder, wanted=lambda name: not name.endswith(".pyc") and not _NCCL.search(name)):
    """(path relative to the folder, directory entry) of the wanted files below a folder, in a fixed order."""
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
            elif wanted(entry.name):
                yield prefix + entry.name, entry


def _content(path):
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return digest.hexdigest()
