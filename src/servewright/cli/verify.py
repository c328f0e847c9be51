"""servewright verify"""

from __future__ import annotations

from servewright.cli import playbook
from servewright.cli.options import Common, Services


def verify(common: Common, services: Services = None) -> int:
    """Prove that what runs is what was deployed, and that it answers right. Changes nothing."""
    return playbook.run("verify", common, services)
