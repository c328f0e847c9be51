"""servewright deploy"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from servewright.cli import playbook
from servewright.cli.options import Common, Detach, LockWait, Reason, Services
from servewright.driver.results import HostResult, RunResult

Plan = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="Only what this plan says; see plan --out.", show_default=False),
]


def deploy(
    common: Common,
    services: Services = None,
    plan: Plan = None,
    reason: Reason = "",
    lock_wait: LockWait = 0,
    detach: Detach = False,
) -> int:
    """Bring services to what is declared, or back if that fails.

    Whoever starts it may go away: the host goes on by itself until the new release is verified, or the old one is.
    """
    variables: dict[str, Any] = {
        "servewright_reason": reason,
        "servewright_lock_wait": lock_wait,
        "servewright_detach": detach,
    }
    if plan is None:
        return playbook.run("deploy", common, services, **variables)
    return playbook.report(_planned(common, services, plan, variables), common)


def _planned(common: Common, services: Services, plan: Path, variables: dict[str, Any]) -> RunResult:
    """The result of a deploy of what a plan says, and of nothing else."""
    from dataclasses import replace

    from servewright.release.planned import missing, planned
    from servewright.spec.problems import InvalidError

    if services or common.limit is not None:
        return RunResult("deploy", error="a plan says itself which hosts and services: give no SERVICE and no --limit")
    try:
        hosts = planned(plan)
    except InvalidError as error:
        return RunResult("deploy", problems=[problem.as_dict() for problem in error.problems])
    chosen = replace(common, limit=",".join(hosts))
    result = playbook.result("deploy", chosen, servewright_plan=str(plan.absolute()), **variables)
    if not result.error and not result.interrupted:
        for host in missing(hosts, result.hosts):
            result.hosts[host] = HostResult(error="it was planned, and the inventory does not have it any more")
    return result
