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
    from servewright.spec.problems import InvalidError, Positions, Problem

    names = (spec.SERVICES_VARIABLE, spec.HOST_VARIABLE, spec.PROFILES_VARIABLE)
    found: dict[str, list[tuple[object, Positions]]] = {name: [] for name in names}
    problems: list[Problem] = []
    valid: list[str] = []
    try:
        for path in paths:
            for name, *definition in positions.definitions(path, set(names), sure=True):
                found[name].append((definition[0], definition[1]))
    except positions.NeedsAnsible:
        return None
    except InvalidError as error:
        return RunResult("validate", problems=[problem.as_dict() for problem in error.problems])
    declarations, hosts, own = (found[name] for name in names)
    if not declarations:
        return None
    of_profiles: Positions = {}
    try:
        profiles, of_profiles = spec.all_profiles(own)
        host = spec.host(*hosts[0]) if len(hosts) == 1 else None
    except InvalidError as error:
        problems, profiles, host = list(error.problems), [], None
    for value, places in declarations:
        try:
            valid += [service.name for service in spec.services(value, {**of_profiles, **places}, host, profiles)]
        except InvalidError as error:
            problems += error.problems
    return RunResult("validate", problems=[problem.as_dict() for problem in problems], services=valid)
