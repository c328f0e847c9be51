"""servewright preflight"""

from __future__ import annotations

from servewright.cli import playbook
from servewright.cli.options import Common, Services


def preflight(common: Common, services: Services = None) -> int:
    """Show every check of whether what is declared could start, touching nothing."""
    return playbook.run("preflight", common, services)
