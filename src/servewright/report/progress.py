"""Progress while a run goes on: a live line a service on a terminal, plain lines with a heartbeat elsewhere.

It goes to the standard error, so that the standard output holds the report alone.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from servewright.driver.playbook import Event
from servewright.driver.progress import Progress
from servewright.report.board import Board, Row
from servewright.report.style import clean, cut, duration, wants_colour

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

HEARTBEAT = 10.0
"""Seconds of silence after which plain progress says that it is still there."""
QUICK = 2.0
"""Seconds before a run shows any progress: one that is over by then has nothing to tell."""


class Plain:
    """A line when the phase of a service changes, and one every ten seconds."""

    def __init__(self, board: Board, stream: TextIO, now: float):
        self._board, self._stream = board, stream
        self._last = now

    def update(self, changed: list[Row], now: float) -> None:
        due = self._board.unfinished if now - self._last >= HEARTBEAT else []
        for row in [*changed, *(row for row in due if row not in changed)]:
            print(plain_line(row, now), file=self._stream, flush=True)
        if changed or due:
            self._last = now

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing is left to undo."""


class Terminal:
    """Lines that stay in place and tick."""

    def __init__(self, board: Board, stream: TextIO, now: float):
        self._board, self._stream = board, stream
        self._live: Live | None = None
        self._begin = now

    def update(self, changed: list[Row], now: float) -> None:
        if self._live is None and self._board.rows and now - self._begin >= QUICK:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, no_color=not wants_colour(self._stream), highlight=False)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        if self._live is not None:
            self._live.update(self.text(now, self._live.console.width), refresh=True)

    def message(self, text: str) -> None:
        if self._live is None:
            print(text, file=self._stream, flush=True)
        else:
            self._live.console.print(text, markup=False, soft_wrap=True)

    def text(self, now: float, width: int) -> Text:
        """The lines as they are now."""
        from rich.text import Text

        text = Text(no_wrap=True)
        rows = self._board.rows
        names = max(len(row.name) for row in rows)
        phases = max(len(row.phase) for row in rows)
        for index, row in enumerate(rows):
            start = f"{row.name:<{names}}  "
            middle = f"{row.phase:<{phases}}  "
            clock = f"{ticking(row.elapsed(now)):>7}  "
            text.append("\n" if index else "")
            text.append(start, "bold").append(middle, _RICH.get(row.style, "cyan")).append(clock)
            text.append(cut(row.line, width - len(start) - len(middle) - len(clock) - 1), "dim")
        return text

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


_RICH = {"good": "green", "change": "yellow", "bad": "bold red", "strong": "bold", "faint": "dim"}


class Display(AbstractContextManager["Display"]):
    """Shows the items of a run as they come; `verbose` shows what Ansible prints, too."""

    def __init__(self, verbose: bool, stream: TextIO | None = None):
        stream = stream or sys.stderr
        self.board = Board()
        self._verbose = verbose
        view = Terminal if stream.isatty() and os.environ.get("TERM") != "dumb" else Plain
        self._view: Plain | Terminal = view(self.board, stream, time.monotonic())

    def show(self, items: list[Event | Progress]) -> None:
        """Take the items of one tick, possibly none."""
        now = time.monotonic()
        changed: list[Row] = []
        for item in items:
            changed += [row for row in self.board.feed(item, now) if row not in changed]
            if self._verbose and not isinstance(item, Progress):
                self._print(item)
        self._view.update(changed, now)

    def _print(self, event: dict[str, Any]) -> None:
        for line in str(event.get("stdout") or "").splitlines():
            # Ansible fills its banners up to the width of the terminal, which is made very wide for it.
            self._view.message(clean(re.sub(r"\*{4,}$", "***", line.rstrip())))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view.close()


def plain_line(row: Row, now: float) -> str:
    """`gpu1 kimi: loading, 3m 05s: last log line`."""
    return f"{row.name}: {row.phase}, {ticking(row.elapsed(now))}" + (f": {row.line}" if row.line else "")


def ticking(seconds: float) -> str:
    """A duration in whole seconds, as tenths are only unrest on a clock."""
    return duration(int(seconds)) if seconds >= 10 else f"{int(seconds)}s"
