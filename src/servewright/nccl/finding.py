"""What the linter says about one setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from .rules import Severity
from .sources import Location


@dataclass(frozen=True)
class Finding:
    """One thing to know about one setting; variable is None when it is about the host and the engine alone.

    no_effect: the setting changes nothing here, and the message says why.
    """

    id: str
    severity: Severity
    variable: str | None
    value: str | None
    message: str
    suggestion: str
    source: str
    no_effect: bool = False
    location: Location | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON; file and line are null where the origin is unknown."""
        return {
            "id": self.id,
            "severity": self.severity,
            "variable": self.variable,
            "value": self.value,
            "message": self.message,
            "suggestion": self.suggestion,
            "source": self.source,
            "no_effect": self.no_effect,
            "file": self.location.file if self.location else None,
            "line": self.location.line if self.location else None,
        }


class Problem(NamedTuple):
    """A finding on a single variable, before it is known which and where."""

    id: str
    severity: Severity
    message: str
    suggestion: str
    no_effect: bool = False
    source: str = ""
    """Empty stands for what the finding is given."""

    def of(self, variable: str, value: str, source: str) -> Finding:
        """The finding on this variable."""
        what = (self.message, self.suggestion, self.source or source, self.no_effect)
        return Finding(self.id, self.severity, variable, value, *what)
