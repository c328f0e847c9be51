"""servewright render"""

from __future__ import annotations

from servewright.cli import playbook
from servewright.cli.options import Common, Services


def render(common: Common, services: Services = None) -> int:
    """Print the systemd units, or with --json the whole releases."""
    return playbook.run("render", common, services)
