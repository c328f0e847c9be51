"""How NCCL itself reads a value, which is not how people write them."""

from __future__ import annotations

import re

_STRTOLL = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_SUFFIXED = re.compile(r"\s*(\d+)\s*([kmgt])(?:i?b)?\s*$", re.IGNORECASE)
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_LONG_LONG = 2**63


def integer(text: str) -> int | None:
    """The number NCCL takes from a text: strtoll with base 0, which stops where the number ends.

    None means NCCL keeps its default: the text is empty or the number does not fit 64 bits.
    Source: NCCL 2.30.7 src/misc/param.cc ncclLoadParam.
    """
    if not text:
        return None
    match = _STRTOLL.match(text)
    if match is None:
        return 0
    sign, digits = match.groups()
    if digits.lower().startswith("0x"):
        number = int(digits, 16)
    else:
        number = int(digits, 8 if digits.startswith("0") else 10)
    number = -number if sign == "-" else number
    return number if -_LONG_LONG <= number < _LONG_LONG else None


def plain(text: str) -> bool:
    """Whether a text is a number that everyone reads the same: decimal, no leading zero, or hexadecimal."""
    return re.fullmatch(r"-?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+)", text) is not None


def meant(text: str) -> int | None:
    """The number a person most likely meant, None when there is no telling."""
    suffixed = _SUFFIXED.match(text)
    if suffixed:
        return int(suffixed[1]) * _UNITS[suffixed[2].lower()]
    word = text.strip().strip("\"'").lower()
    if word in {"true", "yes", "on", "enable", "enabled"}:
        return 1
    if word in {"false", "no", "off", "disable", "disabled"}:
        return 0
    try:
        return int(word.replace("_", "").replace(",", ""), 10)
    except ValueError:
        return None
