"""servewright rollback"""

from __future__ import annotations

from typing import Annotated

import typer

from servewright.cli import playbook
from servewright.cli.options import Common, Detach, LockWait, Reason

Service = Annotated[str, typer.Argument(metavar="SERVICE", help="The service.")]
Release = Annotated[
    int | None,
    typer.Argument(metavar="RELEASE", min=1, help="Its number; without it the one before.", show_default=False),
]


def rollback(
    common: Common,
    service: Service,
    release: Release = None,
    reason: Reason = "",
    lock_wait: LockWait = 0,
    detach: Detach = False,
) -> int:
    """Go back to an earlier release, through the same gates."""
    return playbook.run(
        "rollback",
        common,
        [service],
        servewright_to_release=release,
        servewright_reason=reason,
        servewright_lock_wait=lock_wait,
        servewright_detach=detach,
    )
