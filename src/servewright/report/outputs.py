"""The files that a run leaves for people and for CI beside its report on the terminal."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from servewright.driver.results import RunResult


@dataclass(frozen=True)
class Outputs:
    """Where to write what; None: not asked for."""

    junit: Path | None = None
    html: Path | None = None

    def check(self) -> None:
        """Raise OSError for a file that could not be written: better now than after a deploy of ten minutes."""
        for path in filter(None, (self.junit, self.html)):
            if path.is_dir() or not path.absolute().parent.is_dir() or not os.access(path.absolute().parent, os.W_OK):
                raise OSError(f"cannot write {path}: {'it is a folder' if path.is_dir() else 'no such folder'}")

    def write(self, result: RunResult, code: int) -> None:
        """Write them. Raises OSError."""
        when = datetime.now(UTC)
        if self.junit:
            from servewright.report.junit import junit

            self.junit.write_text(junit(result, when), encoding="utf-8")
        if self.html:
            from servewright.report.html import html

            self.html.write_text(html(result, code, when), encoding="utf-8")
