"""The files of a model: names, sizes and times of all, the content of config.json."""

from __future__ import annotations

import hashlib
import os

from .. import files


def files_of(folder):
    """{"<path in the folder>": [size in bytes, time of modification in ns or, of config.json, content digest]}.

    Links are followed: caches of model hubs keep the files elsewhere. {} when there is no such folder.
    """
    found = {}
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(top, name)
            # A name that is not UTF-8 must not keep the record from being written.
            short = os.path.relpath(path, folder).encode("utf-8", "backslashreplace").decode()
            try:
                state = os.stat(path)
            except OSError:
                found[short] = None  # a link that leads nowhere
                continue
            last = state.st_mtime_ns
            if short == "config.json":
                last = hashlib.sha256(files.read_bytes(path) or b"").hexdigest()
            found[short] = [state.st_size, last]
    return found
