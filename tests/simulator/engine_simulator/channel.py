"""Messages between the simulated processes: one JSON object per packet of a Unix socket pair.

A closed end is how a process learns that its peer died, so every process closes the ends it does not own.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterable
from typing import Any


class Channel:
    """One end. `receive()` blocks and returns None once the peer is gone."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(left), cls(right)

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        return self.end.fileno()

    def send(self, **message: Any) -> bool:
        """False when the peer is gone."""
        try:
            self.end.send(json.dumps(message).encode())
            return True
        except OSError:
            return False

    def receive(self) -> dict[str, Any] | None:
        try:
            packet = self.end.recv(65536)
        except OSError:
            return None
        return json.loads(packet) if packet else None


class Lifeline:
    """Ends the children of a process at once when it dies, whatever they are doing.

    The parent alone keeps the writing end, so its death closes the pipe.
    """

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    @staticmethod
    def hang_on(reader: int) -> None:
        """In a child: exit as soon as the parent is gone."""

        def watch() -> None:
            os.read(reader, 1)
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


def close_all_but(keep: Iterable[int]) -> None:
    """Close every descriptor above stderr except `keep`; for a freshly forked child."""
    kept = sorted({0, 1, 2, *keep})
    for low, high in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")]):
        os.closerange(low + 1, high)
