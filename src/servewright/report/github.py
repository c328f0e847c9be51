"""What GitHub Actions shows of a run: annotations at the lines of a pull request, and the summary of a step."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from servewright.driver.results import RunResult


def active() -> bool:
    """Whether this process runs in a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def commands(result: RunResult) -> Iterator[str]:
    """A workflow command for each failure and warning. The runner reads them from either output of a step."""
    from servewright.report.cases import BAD, suites

    for suite in suites(result):
        for case in suite.cases:
            if case.outcome in (*BAD, "warning"):
                level = "warning" if case.outcome == "warning" else "error"
                place = {"file": _relative(case.file), "line": str(case.line)} if case.file else {}
                title = f"{suite.name}: {case.kind} {case.name}" if case.kind != "verdict" else f"{suite.name}"
                properties = ",".join(f"{name}={_property(text)}" for name, text in {**place, "title": title}.items())
                yield f"::{level} {properties}::{_data(case.message or case.name)}"


def quiet(text: str) -> str:
    """Text in which the runner obeys no workflow command: a log line of an engine may look like one."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}\n{text}::{token}::\n"


def add_summary(markdown: str) -> None:
    """Append to the summary of this step, if there is one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(markdown + "\n")


def _relative(file: str) -> str:
    """The path as the repository knows it, where it is in there."""
    top = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()).resolve()
    path = Path(file).resolve()
    return str(path.relative_to(top)) if path.is_relative_to(top) else file


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
