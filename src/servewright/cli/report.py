"""servewright report"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from servewright.cli import playbook
from servewright.cli.options import Common
from servewright.cli.plan import DetailedExitCode
from servewright.driver.results import RunResult

Results = Annotated[
    Path,
    typer.Argument(
        metavar="RESULTS", help="JSON of a run, or artifacts of ansible-runner (a folder).", show_default=False
    ),
]


def report(common: Common, results: Results, detailed_exitcode: DetailedExitCode = False) -> int:
    """Report on a run that is over, with its exit code."""
    from servewright.driver.artifacts import from_folder
    from servewright.report.document import from_document
    from servewright.report.outputs import check_writable

    try:
        check_writable(common.junit, common.html)
        found = from_folder(results) if results.is_dir() else from_document(results.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        found = RunResult("report", error=f"there is no {error.filename}" if error.filename else str(error))
    except (OSError, ValueError) as error:
        detail = f"{results} is not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)
        found = RunResult("report", error=detail)
    return playbook.report(found, common, detailed_exitcode)
