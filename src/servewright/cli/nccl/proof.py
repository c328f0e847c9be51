"""servewright nccl proof"""

from __future__ import annotations

from servewright.cli import playbook
from servewright.cli.options import Common, Services


def proof(common: Common, services: Services = None) -> int:
    """Show what every rank's NCCL saw and did when the service was verified."""
    return playbook.run("proof", common, services)
