"""servewright history"""

from __future__ import annotations

from servewright.cli import playbook
from servewright.cli.options import Common, Services


def history(common: Common, services: Services = None) -> int:
    """Show who changed what, when and why."""
    return playbook.run("history", common, services)
