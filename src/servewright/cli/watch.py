"""servewright watch"""

from __future__ import annotations

from servewright.cli import playbook
from servewright.cli.options import Common, Services


def watch(common: Common, services: Services = None) -> int:
    """Show whether services answer now, and what their watch knows."""
    return playbook.run("watch", common, services)
