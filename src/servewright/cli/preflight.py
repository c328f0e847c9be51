"""servewright preflight"""

from __future__ import annotations

from servewright.cli import playbook
from servewright.cli.options import Common, Services


def preflight(common: Common, services: Services = None) -> int:
    """Show whether what is declared could start, check by check."""
    return playbook.run("preflight", common, services)
