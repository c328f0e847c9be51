"""servewright verify"""

from __future__ import annotations

from servewright.cli import playbook
from servewright.cli.options import Common, Services


def verify(common: Common, services: Services = None) -> int:
    """Prove that what runs was deployed and answers right."""
    return playbook.run("verify", common, services)
