"""Progress lines that the action plugin appends to a file while a transaction runs on a host."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "SERVEWRIGHT_PROGRESS"
"""Environment variable with the path of the file: JSON lines of time, host, service, step, elapsed and line."""


@dataclass(frozen=True)
class Progress:
    """Where a service on a host is. `elapsed` is in seconds since its transaction began, `line` the engine's last."""

    host: str
    service: str
    step: str
    elapsed: float = 0.0
    line: str = ""


class Tail:
    """Reads what was appended to a file since the last look."""

    def __init__(self, path: Path):
        path.touch(mode=0o600)
        self._stream = path.open("rb")
        self._rest = b""

    def read(self) -> list[Progress]:
        """The new progress, oldest first. A line that is not whole yet waits for the next look."""
        *lines, self._rest = (self._rest + self._stream.read()).split(b"\n")
        return [found for line in lines if (found := _parse(line)) is not None]

    def close(self) -> None:
        self._stream.close()


def _parse(line: bytes) -> Progress | None:
    try:
        entry: dict[str, Any] = json.loads(line)
        return Progress(
            host=str(entry["host"]),
            service=str(entry["service"]),
            step=str(entry["step"]),
            elapsed=float(entry.get("elapsed") or 0),
            line=str(entry.get("line") or ""),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        # Progress is for the eye only: a line that makes no sense must not end a deploy.
        return None
