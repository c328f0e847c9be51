"""servewright status"""

from __future__ import annotations

from servewright.cli import playbook
from servewright.cli.options import Common, Services


def status(common: Common, services: Services = None) -> int:
    """Show what runs, and from which release."""
    return playbook.run("status", common, services)
