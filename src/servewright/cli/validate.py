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

    names = (spec.SERVICES_VARIABLE, spec.HOST_VARIABLE, spec.PROFILES_VARIABLE)
    found: list[positions.Definition] = []
    problems: list[Problem] = []
    try:
        for path in paths:
            read, unread = positions.definitions(path, names, sure=True)
            found += read
            problems += unread
    except positions.NeedsAnsible:
        return None
    services, hosts, own = ([(one.value, one.positions) for one in found if one.name == name] for name in names)
    if not services and not problems:
        return None
    known = [spec.attempt(problems, spec.host, *one) for one in hosts]
    profiles, of_profiles = spec.attempt(problems, spec.all_profiles, own) or ([], {})
    # What else is wrong may be why a profile is not known.
    sure = None if problems else profiles
    valid: list[str] = []
    for value, places in services:
        where = {**of_profiles, **places}
        one = spec.attempt(problems, spec.services, value, where, known[0] if len(known) == 1 else None, sure)
        valid += [service.name for service in one or []]
    return RunResult("validate", problems=[one.as_dict() for one in InvalidError(problems).problems], services=valid)
