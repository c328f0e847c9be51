"""The files that a run leaves for people and for CI beside its report on the terminal."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from servewright.driver.results import RunResult


def check_writable(*paths: Path | None) -> None:
    """Raise OSError for a file that could not be written: better now than after a deploy of ten minutes."""
    for path in filter(None, paths):
        folder = path.absolute().parent
        why = "it is a folder" if path.is_dir() else "" if folder.is_dir() else f"no folder {folder}"
        if why or not os.access(path if path.exists() else folder, os.W_OK):
            raise OSError(f"cannot write {path}: {why or 'no permission'}")


def write(result: RunResult, code: int, junit: Path | None, html: Path | None) -> None:
    """Write those that were asked for. Raises OSError, in the words of check_writable where it can tell why."""
    check_writable(junit, html)
    when = datetime.now(UTC)
    if junit:
        from servewright.report.junit import junit as as_junit

        junit.write_text(as_junit(result, when), encoding="utf-8")
    if html:
        from servewright.report.html import html as as_html

        html.write_text(as_html(result, code, when), encoding="utf-8")
