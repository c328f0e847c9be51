"""The places NCCL settings come from, read exactly as NCCL, systemd and the kernel write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from . import version
from .version import Version

_NAME_LIMIT = _VALUE_LIMIT = 1023
"""NCCL copies names and values into buffers of 1024 characters."""


class Location(NamedTuple):
    """Where a value stands; line is 1-based, None where there are no lines."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Entry(NamedTuple):
    name: str
    value: str
    origin: Location


def conf_file(text: str, file: str, nccl: Version | None = None) -> list[Entry]:
    """The settings in /etc/nccl.conf or NCCL_CONF_FILE, spaces and quotes included, as NCCL takes them.

    Everything before the first = is the name, everything after it the value; a line without = is skipped.
    Before 2.26.2 a # did not start a comment but a name, and before 2.30.3 a carriage return stayed in the
    value.
    Source: NCCL src/misc/param.cc setEnvFile of those tags.
    """
    nccl = nccl or (99, 0, 0)
    entries = []
    for number, line in enumerate(text.split("\n"), start=1):
        if nccl >= version.parse("2.30.3"):
            line = line.removesuffix("\r")
        if line.startswith("#") and nccl >= version.parse("2.26.2"):
            continue
        name, separator, value = line.partition("=")
        if separator:
            entries.append(Entry(name[:_NAME_LIMIT], value[:_VALUE_LIMIT], Location(file, number)))
    return entries


def environ(data: bytes, file: str) -> list[Entry]:
    """The variables in the bytes of /proc/PID/environ; of a name that stands twice the first is read."""
    entries: dict[str, Entry] = {}
    for item in data.split(b"\0"):
        name, separator, value = item.decode("utf-8", "surrogateescape").partition("=")
        if separator:
            entries.setdefault(name, Entry(name, value, Location(file)))
    return list(entries.values())


def effective(
    environment: Iterable[Entry], conf: Iterable[Entry] = (), etc: Iterable[Entry] = ()
) -> dict[str, Entry]:
    """The entry of each variable that NCCL uses: environment, NCCL_CONF_FILE or ~/.nccl.conf, /etc/nccl.conf.

    Within a file the first line of a name wins, and a variable that is set but empty still hides the files,
    because NCCL adds a file's line only where the name is not set at all.
    Source: NCCL 2.30.7 src/misc/param.cc initEnvFunc.
    """
    chosen = {entry.name: entry for entry in environment}
    for entry in (*conf, *etc):
        chosen.setdefault(entry.name, entry)
    return chosen
