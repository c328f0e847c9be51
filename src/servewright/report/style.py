"""Colours of a terminal, and text that is safe to show on one."""

from __future__ import annotations

import os
import re
from typing import IO, Any

_CODES = {"good": "32", "change": "33", "bad": "31;1", "strong": "1", "faint": "2"}
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")
# What XML 1.0 or HTML cannot hold, not even escaped.
_UNWRITABLE = re.compile(
    "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\ufdd0-\\ufdef\\ufffe\\uffff"
    + "".join(f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(1, 17))
    + "]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def wants_colour(stream: IO[Any]) -> bool:
    """Colour goes to terminals only, and not where NO_COLOR is set to anything (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, colour: bool) -> str:
    """Text in a style: good, change, bad, strong or faint; "" is plain."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if colour and style and text else text


def clean(line: object) -> str:
    """One line of foreign text without anything that a terminal would act on.

    A progress bar overwrites itself with carriage returns; what it showed last is what counts.
    """
    text = _ESCAPE.sub("", str(line)).rstrip("\r\n")
    return _CONTROL.sub("", text.rsplit("\r", 1)[-1].replace("\n", " ").replace("\t", "    "))


def writable(text: str) -> str:
    """Text of one or more lines that XML and HTML can hold."""
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def cut(text: str, width: int) -> str:
    """Text of at most `width` characters."""
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."


def duration(seconds: float) -> str:
    """`0.4s`, `42s`, `3m 05s`, `1h 02m`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
