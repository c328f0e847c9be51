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
    from servewright.spec.problems import Positions
    from servewright.spec.service import Service

    Definition = tuple[object, Positions]


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
    from servewright.nccl.sources import Location
    from servewright.spec import nccl, validate

    names = (validate.SERVICES_VARIABLE, validate.HOST_VARIABLE, validate.PROFILES_VARIABLE)
    found = _definitions(inventories, names)
    declarations, hosts, _ = (found[name] for name in names)
    if not declarations:
        raise ValueError(f"the inventory does not define {validate.SERVICES_VARIABLE}")
    own = _profiles(found[validate.PROFILES_VARIABLE])
    shapes = [profile for profile, _ in own]
    # As `validate` has it: which host a file is for is known to Ansible only, so more than one tells nothing.
    host = validate.host(*hosts[0]) if len(hosts) == 1 else None
    result = []
    for value, positions in declarations:
        valid = validate.services(value, positions, host, shapes, nccl_errors=False)
        for index, service in enumerate(valid):
            path = (validate.SERVICES_VARIABLE, index)
            settings = nccl.settings(service, path, host, shapes)
            places = {setting.row.variable: _location(setting.path, positions, own) for setting in settings}
            result.append(
                Declared(
                    service,
                    nccl.facts(service, host),
                    [setting.row for setting in settings],
                    {name: at for name, at in places.items() if at is not None},
                    Location(place(positions[path][0]), positions[path][1]) if path in positions else None,
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

    found = _definitions(inventories, (validate.PROFILES_VARIABLE,))
    return [profile for profile, _ in _profiles(found[validate.PROFILES_VARIABLE])]


def _definitions(inventories: list[str] | None, names: Sequence[str]) -> dict[str, list[Definition]]:
    from servewright.spec import positions

    found: dict[str, list[Definition]] = {name: [] for name in names}
    for path in playbook.inventories(Common(inventory=inventories)):
        if "," in path:
            raise ValueError(f"{path} is a list of hosts and declares nothing: give a file or folder with -i")
        try:
            for name, value, places in positions.definitions(Path(path), set(names)):
                found[name].append((value, places))
        except positions.NeedsAnsible as error:
            raise ValueError(
                f"{place(str(error))}, which only Ansible can resolve; write `servewright render` to a file, "
                "or look at the unit on the host, with --unit"
            ) from None
    return found


def _profiles(definitions: list[Definition]) -> list[tuple[Profile, Positions]]:
    """Each profile with the positions of its definition."""
    from servewright.spec import validate

    return [(profile, places) for value, places in definitions for profile in validate.profiles(value, places)]


def _location(
    path: tuple[str | int, ...], positions: Positions, own: Sequence[tuple[Profile, Positions]]
) -> Location | None:
    from servewright.nccl.sources import Location
    from servewright.spec.nccl import PROFILES

    if path[0] == PROFILES:
        # The index counts over all definitions, and positions over one.
        number = int(path[1])
        positions = own[number][1]
        first = next(index for index, (_, places) in enumerate(own) if places is positions)
        path = (PROFILES, number - first, *path[2:])
    at = next((positions[path[:end]] for end in range(len(path), 0, -1) if path[:end] in positions), None)
    return Location(place(at[0]), at[1]) if at else None
