"""servewright plan"""

from __future__ import annotations

from typing import Annotated

import typer

from servewright.cli import playbook
from servewright.cli.options import Common, Services

DetailedExitCode = Annotated[bool, typer.Option("--detailed-exitcode", help="Exit with 2 when there are changes.")]


def plan(common: Common, services: Services = None, detailed_exitcode: DetailedExitCode = False) -> int:
    """Show what a deploy would change, and what it would restart."""
    return playbook.run("plan", common, services, detailed_exitcode)
