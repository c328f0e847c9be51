"""servewright nccl import"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from servewright.cli.nccl.ending import document, ending
from servewright.cli.options import Json


@ending
def import_(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="UNIT_OR_FILE", help="A unit by name, a unit file, an environment file, or /proc/PID/environ."
        ),
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the profile.")],
    json: Json = False,
) -> int:
    """Print the NCCL settings of a unit as a profile.

    What is printed goes into the inventory; services then name the profile.
    """
    import yaml

    from servewright.cli.nccl import machine
    from servewright.nccl.importer import profile_of
    from servewright.nccl.profiles import NAME
    from servewright.spec.validate import PROFILES_VARIABLE

    if not re.fullmatch(NAME, name):
        raise ValueError(f"--name: {name!r} is no name of a profile: lower case letters, digits and '-'")
    path = Path(source)
    if path.is_file() and "[Service]" not in path.read_text(encoding="utf-8", errors="surrogateescape"):
        found = machine.environment_file(source)
    else:
        found = machine.unit(source)
    for unread in [] if json else found.unread:
        print(f"warning: cannot read {unread}; what it sets is missing", file=sys.stderr)
    profile = profile_of(found.entries, name, found.name, found.unread)
    content = {PROFILES_VARIABLE: [profile.model_dump(mode="json", exclude_defaults=True)]}
    if json:
        document({"version": 1, **content, "unread": found.unread})
        return 0
    print(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120), end="")
    return 0
