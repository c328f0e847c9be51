"""Lines of text with a style for each part, laid out to the width of a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence

from servewright.report.style import clean, cut, paint, wants_colour

Part = tuple[str, str]
"""Text and its style."""
Line = list[Part]

INDENT = "    "
LABEL = 10


def labelled(label: str, text: object, width: int | None, style: str = "faint") -> list[Line]:
    """A label and its text, which is wrapped beside it; `width` None leaves it on one line."""
    return beside((f"{INDENT}{label:<{LABEL}}", style), text, width)


def beside(head: Part, text: object, width: int | None, style: str = "") -> list[Line]:
    """A head and its text in a style, which is wrapped beside it; `width` None leaves it on one line."""
    room = width and max(20, width - len(head[0]))
    lines = [part for line in str(text).splitlines() for part in _wrap(clean(line), room)] or [""]
    return [[head, (lines[0], style)], *([(" " * len(head[0]), ""), (line, style)] for line in lines[1:])]


def _wrap(text: str, room: int | None) -> list[str]:
    if not room:
        return [text]
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]


def listed(label: str, items: Iterable[object], width: int | None, style: str = "faint") -> list[Line]:
    """Several items beside one label."""
    lines: list[Line] = []
    for item in items:
        lines += labelled("" if lines else label, item, width, style)
    return lines


def verbatim(label: str, items: Iterable[object], width: int | None) -> list[Line]:
    """Foreign lines beside a label, cut to the width: where a column begins tells more than where a line ends."""
    texts = [clean(item) for item in items]
    room = width - len(INDENT) - LABEL if width else 0
    return [
        [(f"{INDENT}{'' if index else label:<{LABEL}}", "faint"), (cut(text, room) if room else text, "")]
        for index, text in enumerate(texts)
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[Part]]) -> list[Line]:
    """Columns as wide as their content, the last one open."""
    texts = [head, *([text for text, _ in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines: list[Line] = [_row([(cell, "faint") for cell in head], widths)]
    return lines + [_row(row, widths) for row in rows]


def _row(cells: Sequence[Part], widths: Sequence[int]) -> Line:
    *front, last = zip(cells, widths, strict=True)
    return [*((f"{text:<{width}}  ", style) for (text, style), width in front), last[0]]


def as_text(lines: Iterable[Line], colour: bool) -> str:
    """The lines as text, each with its end."""
    return "".join("".join(paint(text, style, colour) for text, style in line).rstrip() + "\n" for line in lines)


def for_output(lines: Callable[[int | None], Iterable[Line]]) -> str:
    """What `lines` gives for the width of the standard output (None: not a terminal), as text to write there."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return as_text(lines(width), wants_colour(sys.stdout))
