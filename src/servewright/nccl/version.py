"""NCCL version numbers as comparable tuples."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

_NUMBER = re.compile(r"^\s*v?(\d+)\.(\d+)(?:\.(\d+))?(?![\d.])")


def parse(text: str) -> tuple[int, int, int]:
    """`2.28.9`, `v2.28.9-1`, `2.28.9+cuda13.0` or `2.18` as `(2, 28, 9)`.

    Raises ValueError when the text does not start with a version.
    """
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not an NCCL version; write it as 2.28.9")
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch or 0)


def _parsed(value: Any) -> Any:
    return parse(value) if isinstance(value, str) else value


Version = Annotated[tuple[int, int, int], BeforeValidator(_parsed)]
"""A field of this type takes a text as well."""


def render(version: Version) -> str:
    """`2.28.9`, or `2.17` for a version that stands for a whole series."""
    return ".".join(str(part) for part in (version if version[2] else version[:2]))
