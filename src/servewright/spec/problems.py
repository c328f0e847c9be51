"""Problems found in what was declared, each with its place and the right value."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from ansible_collections.servewright.llm.plugins.module_utils.host import masks

Path = tuple[str | int, ...]
Positions = Mapping[Path, tuple[str, int]]
"""File and line of every key and item of a declaration."""
SECRET_NAME = re.compile(r"(^|_)(TOKEN|API_KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)", re.IGNORECASE)
NOT_SHOWN = masks.HIDDEN


class Unreadable(Enum):
    """Stands for a value that cannot be read, which a problem of its own says."""

    UNREADABLE = "unreadable"


UNREADABLE = Unreadable.UNREADABLE


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `value` is the offending value, `hint` the right one or how to get there."""

    path: Path
    message: str
    value: Any = None
    hint: str = ""
    file: str = ""
    line: int = 0

    def located(self, positions: Positions) -> Problem:
        """The same problem with the place of its path, or of the nearest parent that has one."""
        for end in range(len(self.path), -1, -1):
            if self.path[:end] in positions:
                file, line = positions[self.path[:end]]
                return replace(self, file=file, line=line)
        return self

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        hint = f" ({self.hint})" if self.hint else ""
        what = f"{dotted(self.path)}: " if self.path else ""
        return f"{place}{what}{self.message}{hint}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON output."""
        return {
            "file": self.file,
            "line": self.line,
            "path": dotted(self.path),
            "message": self.message,
            "value": NOT_SHOWN if is_secret(self.path, self.value) else _shown(self.value),
            "hint": self.hint,
        }


class InvalidError(ValueError):
    """What was declared is not valid; holds every problem found."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems = sorted(
            {str(p): p for p in problems}.values(), key=lambda p: (p.file, p.line, dotted(p.path), p.message)
        )
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: Path) -> str:
    """`services[0].model.path` for ('services', 0, 'model', 'path')."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one is most likely meant to be."""
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)), None)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known name, or all of them when none is near."""
    names = sorted(known)
    close = near(name, names)
    return f"did you mean {close!r}?" if close else f"known: {', '.join(names)}"


def is_secret(path: Path, value: Any = None) -> bool:
    """Whether what stands at a path is or holds a secret, by the names of its keys, misspelt ones too."""
    for key in path:
        if isinstance(key, str) and (
            SECRET_NAME.search(key) or difflib.get_close_matches(key.lower(), ("secret", "secrets"), cutoff=0.75)
        ):
            return True
    if isinstance(value, Mapping):
        return any(is_secret((key,), inner) for key, inner in value.items())
    return isinstance(value, list) and any(is_secret((), inner) for inner in value)


def short(value: Any) -> str:
    """A value as it is shown in a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _shown(value: Any) -> Any:
    # JSON has neither infinity nor dates, and more than this of a value helps nobody.
    text = json.dumps(value, default=repr)
    return json.loads(text, parse_constant=str) if len(text) <= 1000 else f"{text[:997]}..."
