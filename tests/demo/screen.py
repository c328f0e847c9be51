"""What the demo itself says; the commands it runs write to the terminal by themselves."""

from __future__ import annotations

import difflib
import shutil
import sys
import textwrap
from collections.abc import Sequence

from servewright.report.style import paint, wants_colour

MARGIN = "  "
WIDEST = 100
"""Columns of prose; longer lines are hard to read."""


def heading(text: str) -> None:
    """A rule across the screen with a title in it."""
    rule = "─" * (_width() - len(text) - 4)
    _print(f"\n{_painted('──', 'faint')} {_painted(text, 'strong')} {_painted(rule, 'faint')}")


def prose(text: str) -> None:
    """A paragraph."""
    for line in textwrap.wrap(text, _width() - 2 * len(MARGIN), break_on_hyphens=False):
        _print(MARGIN + line)


def table(rows: Sequence[Sequence[str]], style: str = "strong") -> None:
    """Columns as wide as their content, the first one in a style; the last one may be wrapped."""
    columns = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    room = _width() - len(MARGIN) - sum(columns) - 2 * (len(columns) + 1)
    _print("")
    for first, *middle, last in rows:
        cells = [f"{cell:<{column}}" for cell, column in zip(middle, columns[1:], strict=True)]
        text = textwrap.wrap(last, room)
        start = "  ".join([f"{MARGIN}  {_painted(f'{first:<{columns[0]}}', style)}", *cells])
        _print(f"{start}  {text[0]}")
        for line in text[1:]:
            _print(" " * (_width() - room) + line)


def difference(old: str, new: str) -> None:
    """The lines that a file loses and gets."""
    _print("")
    for line in difflib.ndiff(old.splitlines(), new.splitlines()):
        if line[0] in "+-":
            _print(f"{MARGIN}  {_painted(line, 'good' if line[0] == '+' else 'bad')}")


def command(line: str) -> None:
    """A command line that is about to run."""
    _print(f"\n{MARGIN}{_painted('$', 'faint')} {_painted(line, 'strong')}\n")


def _print(line: str) -> None:
    print(line, flush=True)  # before the commands, which write to the same terminal


def _painted(text: str, style: str) -> str:
    return paint(text, style, wants_colour(sys.stdout))


def _width() -> int:
    return min(shutil.get_terminal_size().columns, WIDEST)
