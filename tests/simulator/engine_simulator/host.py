"""Where the simulated host's root is, and the process facts of /proc that several parts need."""

from __future__ import annotations

import functools
import pathlib


@functools.cache
def root() -> pathlib.Path:
    """The root that install() was given: '/' inside a test host, a folder in unit tests.

    Found by the etc/simulator folder that install() makes, so the same files work in both.
    """
    for folder in pathlib.Path(__file__).resolve().parents:
        if (folder / "etc/simulator").is_dir():
            return folder
    return pathlib.Path("/")


def start_time(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat (clock ticks since boot); None for a process that is gone or a zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])
