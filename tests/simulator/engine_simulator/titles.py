"""Process titles, rewritten as the engines do with setproctitle.

A deploy tool that looks for "vllm" or "python" in command lines misses the real engines' children,
so the double has to hide them in the same way.
"""

from __future__ import annotations

import pathlib


def set_title(title: str) -> None:
    """Show `title` as the command line and, cut to 15 bytes, as the name of this process."""
    name = title.encode()
    with pathlib.Path("/proc/self/comm").open("wb", buffering=0) as comm:
        comm.write(name[:15])
    with pathlib.Path("/proc/self/stat").open("rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, fields 48 and 49 of proc(5)
    if end > start:
        with pathlib.Path("/proc/self/mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(name[: end - start - 1].ljust(end - start, b"\0"))


def set_name(name: str) -> None:
    """Set only the short name, which the kernel takes from a script's file name at exec."""
    with pathlib.Path("/proc/self/comm").open("wb", buffering=0) as comm:
        comm.write(name.encode()[:15])
