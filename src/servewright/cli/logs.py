"""servewright logs"""

from __future__ import annotations

from typing import Annotated

import typer

from servewright.cli import playbook
from servewright.cli.options import Common, Services

Lines = Annotated[int, typer.Option("-n", "--lines", min=1, help="How many lines of each service.")]


def logs(common: Common, services: Services = None, lines: Lines = 50) -> int:
    """Print the last log lines of the services."""
    return playbook.run("logs", common, services, servewright_log_lines=lines)
