"""servewright follow"""

from __future__ import annotations

from servewright.cli import playbook
from servewright.cli.options import Common, Services


def follow(common: Common, services: Services = None) -> int:
    """Follow a deploy or rollback that is under way to its verdict."""
    return playbook.run("follow", common, services)
