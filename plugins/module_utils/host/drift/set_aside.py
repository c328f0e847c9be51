"""Foreign files that change our unit are moved into the release's folder, never deleted."""

from __future__ import annotations

import contextlib
import os

from .. import files, releases
from ..errors import HostError


def folder(subject):
    return releases.set_aside(subject.service, subject.number)


def move(subject, path):
    """Move a file or link below the set-aside folder, under its whole old path."""
    target = first = os.path.join(folder(subject), path.lstrip("/"))
    number = 1
    while os.path.lexists(target):
        number += 1
        target = f"{first}.{number}"
    files.make_folder(os.path.dirname(target))
    try:
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
        else:
            # Not a rename: /run and /etc are different file systems.
            files.write(target, files.read_bytes(path) or b"", mode=os.stat(path).st_mode & 0o777)
        files.remove(path)
    except OSError as error:
        raise HostError(f"cannot move {path} to {target}: {error.strerror}") from None
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))  # only when nothing else is in it
