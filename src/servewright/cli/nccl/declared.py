"""What an inventory declares about NCCL, read without Ansible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from servewright.cli import playbook
from servewright.cli.nccl.ending import place
from servewright.cli.options import Common

if TYPE_CHECKING:
    from servewright.nccl.facts import Facts
    from servewright.nccl.profiles import Profile, Resolved
    from servewright.nccl.sources import Location
    from servewright.spec.positions import Definition
    from servewright.spec.problems import Path as Key
    from servewright.spec.problems import Positions, Problem
    from servewright.spec.service import Service


class Declared(NamedTuple):
    """One service with its NCCL settings; origins and own are places in the inventory."""

    service: Service
    facts: Facts
    rows: list[Resolved]
    origins: dict[str, Location]
    own: Location | None


def services(inventories: list[str] | None, only: Sequence[str]) -> list[Declared]:
    """The services of an inventory, or those of the given names.

    Raises InvalidError for what is not valid, ValueError for what cannot be read, FileNotFoundError for no inventory.
    """
    from servewright.spec import nccl, validate
    from servewright.spec.problems import InvalidError

    found, problems = _definitions(inventories, validate.VARIABLES)
    if not problems and validate.SERVICES_VARIABLE not in {one.name for one in found}:
        raise ValueError(f"the inventory does not define {validate.SERVICES_VARIABLE}")
    valid, host, own = validate.inventory(found, problems, nccl_errors=False)
    if problems or any(services is None for services, _ in valid):
        raise InvalidError(problems)
    result = []
    for services, positions in valid:
        for index, service in enumerate(services or []):
            path = (validate.SERVICES_VARIABLE, index)
            settings = nccl.settings(service, path, host, own)
            places = {setting.row.variable: _location(setting.path, positions) for setting in settings}
            result.append(
                Declared(
                    service,
                    nccl.facts(service, host),
                    [setting.row for setting in settings],
                    {name: at for name, at in places.items() if at is not None},
                    _location(path, positions),
                )
            )
    known = {declared.service.name for declared in result}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise ValueError(f"no service {unknown[0]!r}; declared: {', '.join(sorted(known))}")
    return [declared for declared in result if not only or declared.service.name in only]


def profiles(inventories: list[str] | None) -> list[Profile]:
    """The profiles of an inventory, [] without one."""
    from servewright.spec import validate
    from servewright.spec.problems import InvalidError

    found, problems = _definitions(inventories, (validate.PROFILES_VARIABLE,))
    valid = validate.attempt(problems, validate.all_profiles, [(one.value, one.positions) for one in found])
    if problems or valid is None:
        raise InvalidError(problems)
    return valid[0]


def _definitions(inventories: list[str] | None, names: Sequence[str]) -> tuple[list[Definition], list[Problem]]:
    from servewright.spec import positions

    found: list[Definition] = []
    problems: list[Problem] = []
    for path in playbook.inventories(Common(inventory=inventories)):
        if "," in path:
            raise ValueError(f"{path} is a list of hosts and declares nothing: give a file or folder with -i")
        try:
            read, unread = positions.definitions(Path(path), names)
        except positions.NeedsAnsible as error:
            raise ValueError(
                f"{place(str(error))}, which only Ansible can resolve; write `servewright render` to a file, "
                "or look at the unit on the host, with --unit"
            ) from None
        found += read
        problems += unread
    return found, problems


def _location(path: Key, positions: Positions) -> Location | None:
    """Where a key stands, or the nearest one around it."""
    from servewright.nccl.sources import Location

    at = next((positions[path[:end]] for end in range(len(path), 0, -1) if path[:end] in positions), None)
    return Location(place(at[0]), at[1]) if at else None
