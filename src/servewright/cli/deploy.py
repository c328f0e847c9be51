"""servewright deploy"""

from __future__ import annotations

from servewright.cli import playbook
from servewright.cli.options import Common, Detach, LockWait, Reason, Services


def deploy(
    common: Common,
    services: Services = None,
    reason: Reason = "",
    lock_wait: LockWait = 0,
    detach: Detach = False,
) -> int:
    """Bring the services to what is declared, verify them, and roll back where that fails."""
    return playbook.run(
        "deploy",
        common,
        services,
        servewright_reason=reason,
        servewright_lock_wait=lock_wait,
        servewright_detach=detach,
    )
