"""servewright drift"""

from __future__ import annotations

from typing import Annotated

import typer

from servewright.cli import playbook
from servewright.cli.options import Common, LockWait, Reason, Services

Repair = Annotated[bool, typer.Option("--repair", help="Mend what needs no restart; the rest in a maintenance window.")]
AllowRestart = Annotated[bool, typer.Option("--allow-restart", help="With --repair: restart now where it is needed.")]
DetailedExitCode = Annotated[bool, typer.Option("--detailed-exitcode", help="Exit with 2 when drift is left.")]


def drift(
    common: Common,
    services: Services = None,
    repair: Repair = False,
    allow_restart: AllowRestart = False,
    detailed_exitcode: DetailedExitCode = False,
    reason: Reason = "",
    lock_wait: LockWait = 0,
) -> int:
    """Show how what runs differs from what was committed; mend it.

    A restart goes through the same transaction and gates as a deploy.
    """
    return playbook.run(
        "drift",
        common,
        services,
        detailed_exitcode,
        servewright_repair=repair,
        servewright_allow_restart=allow_restart,
        servewright_reason=reason,
        servewright_lock_wait=lock_wait,
    )
