"""servewright version"""

from __future__ import annotations

import json as json_

import typer

from servewright.artefact import ArtefactError, check, describe
from servewright.cli.options import Json


def version(json: Json = False) -> None:
    """Say which copy of servewright runs, and its collection."""
    try:
        found = describe()
    except ArtefactError as error:
        print(f"error  {error}")
        raise typer.Exit(1) from None
    try:
        check()
        problem = None
    except ArtefactError as error:
        problem = str(error)
    if json:
        print(json_.dumps({**found, "problem": problem}, indent=2))
        return
    print(f"servewright  {found['version']} ({found['mode']})  {found['package_path']}")
    print(f"collection   {found['collection_version'] or '-'}  {found['collection_path'] or 'not found'}")
    if problem:
        print(f"problem      {problem}")
