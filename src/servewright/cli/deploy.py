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
    """Bring services to what is declared, or back if that fails.

    Whoever starts it may go away: the host goes on by itself until the new release is verified, or the old one is.
    """
    return playbook.run(
        "deploy",
        common,
        services,
        servewright_reason=reason,
        servewright_lock_wait=lock_wait,
        servewright_detach=detach,
    )
