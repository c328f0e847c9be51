"""The main process's side of the round trip to the head process."""

from __future__ import annotations

import threading

from .channel import Channel


class Link:
    """Lets many request threads share one round trip at a time."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.dead = threading.Event()
        self._waiting: list[threading.Event] = []
        self._wake = threading.Condition()
        self._number = 0

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def confirm(self, timeout: float | None = None) -> bool:
        """Wait until every rank has answered a question asked after this call; False on timeout or death."""
        answered = threading.Event()
        with self._wake:
            self._waiting.append(answered)
            self._wake.notify()
        return answered.wait(timeout) and not self.dead.is_set()

    def fatal(self, text: str) -> None:
        """Make the head process die with this exception."""
        self.channel.send(fatal=text)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting:
                    self._wake.wait()
                asked, self._waiting = self._waiting, []
            self._number += 1
            answer: dict[str, object] | None = None
            if self.channel.send(ping=self._number):
                answer = self.channel.receive()
            if answer is None:
                self.dead.set()
            for event in asked:
                event.set()
            if answer is None:
                return
