"""servewright validate"""

from __future__ import annotations

from pathlib import Path

from servewright.artefact import ArtefactError, check
from servewright.cli import playbook
from servewright.cli.options import Common, Services
from servewright.driver.results import RunResult
from servewright.report.outputs import check_writable


def validate(common: Common, services: Services = None) -> int:
    """Check what the inventory declares. No host is contacted."""
    # Only a plain inventory can be read without Ansible, which takes ten times as long.
    if not (services or common.limit or common.extra_vars or common.ansible):
        try:
            check()
            check_writable(common.junit, common.html)
            result = _without_ansible([Path(path) for path in playbook.inventories(common) if "," not in path])
        except (ArtefactError, OSError, ValueError) as error:
            result = RunResult("validate", error=str(error))
        if result is not None:
            return playbook.report(result, common)
    return playbook.run("validate", common, services)


def _without_ansible(paths: list[Path]) -> RunResult | None:
    """The result, or None where only Ansible can tell: a template, a vault, or no service in a plain file."""
    from servewright.spec import positions
    from servewright.spec import validate as spec
    from servewright.spec.problems import InvalidError, Problem

    found: list[positions.Definition] = []
    problems: list[Problem] = []
    try:
        for path in paths:
            read, unread = positions.definitions(path, spec.VARIABLES, sure=True)
            found += read
            problems += unread
    except positions.NeedsAnsible:
        return None
    if not problems and spec.SERVICES_VARIABLE not in {one.name for one in found}:
        return None
    services, _host, _profiles = spec.inventory(found, problems)
    valid = [service.name for one, _places in services for service in one or []]
    return RunResult("validate", problems=[one.as_dict() for one in InvalidError(problems).problems], services=valid)
