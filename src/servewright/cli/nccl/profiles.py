"""servewright nccl profiles"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from servewright.cli.nccl.ending import document, ending
from servewright.cli.options import Inventory, Json

if TYPE_CHECKING:
    from servewright.nccl.profiles import Profile
    from servewright.report.layout import Line


@ending
def profiles(context: typer.Context, inventory: Inventory = None, json: Json = False) -> int:
    """List the profiles, with a reason for each setting."""
    from servewright.cli.nccl import declared
    from servewright.nccl.profiles import built_in

    listed = [("built in", profile) for profile in built_in().values()]
    listed += [("inventory", profile) for profile in declared.profiles(inventory)]
    if json:
        rows = [{**profile.model_dump(mode="json"), "origin": origin} for origin, profile in listed]
        document({"version": 1, "profiles": rows})
        return 0
    from servewright.report.layout import for_output

    auto: Line = [("auto", "strong"), ("  one of these, or none, by what is declared about host and service", "")]
    sys.stdout.write(for_output(lambda width: [*(line for row in listed for line in _lines(*row, width)), auto]))
    return 0


def _lines(origin: str, profile: Profile, width: int | None) -> list[Line]:
    from servewright.report.layout import labelled

    lines: list[Line] = [[(profile.name, "strong"), (f"  v{profile.version}, {origin}", "")]]
    lines += labelled("for", profile.title, width) if profile.title else []
    lines += labelled("topology", profile.topology, width)
    note = f": {profile.measured.note}" if profile.measured.note else ""
    lines += labelled("measured", f"{profile.measured.status}{note}", width)
    for variable, setting in profile.settings.items():
        lines.append([(f"    {variable}={setting.value}", "strong")])
        lines += labelled("", setting.reason, width)
    return lines if profile.settings else lines + labelled("", "sets nothing", width)
