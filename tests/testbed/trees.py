"""Folders that may have file systems mounted inside them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.testbed.command import execute


def mounts_below(folder: Path, mountinfo: str) -> list[Path]:
    """The mount points at or below folder, innermost first, from the text of /proc/self/mountinfo."""
    points = [line.split()[4].encode().decode("unicode_escape") for line in mountinfo.splitlines()]
    below = [path for point in points if (path := Path(point)).is_relative_to(folder)]
    return sorted(below, key=lambda path: len(path.parts), reverse=True)


def remove_tree(folder: Path) -> None:
    """Delete folder and all below it, after taking down what is mounted there.

    Deleting through a mount would delete what is mounted, so an unmount that fails raises CommandFailed.
    """
    for point in mounts_below(folder.resolve(), Path("/proc/self/mountinfo").read_text()):
        # lazy: a process that just died may hold the mount for some more milliseconds
        execute(["umount", "--lazy", str(point)])
    if folder.exists():
        shutil.rmtree(folder)
