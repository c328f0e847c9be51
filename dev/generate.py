"""Write the files that repeat what is said elsewhere; with --check only tell whether one is out of date.

`make generate` runs this, and `make lint` checks it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import failure_table

from servewright import __version__
from servewright.nccl import registry

ROOT = Path(__file__).resolve().parents[1]


def galaxy(current: str) -> str:
    """The collection has the version of the package."""
    return re.sub(r"^version: .*$", f"version: {__version__}", current, flags=re.MULTILINE)


def variables(_: str) -> str:
    """The table of NCCL variables in a form that is read quickly."""
    return registry.compiled()


# A function takes what the file holds now, and returns what it should hold.
GENERATED: dict[str, Callable[[str], str]] = {
    "galaxy.yml": galaxy,
    "src/servewright/nccl/variables.json": variables,
    "docs/failures.md": failure_table.table,
}


def main() -> int:
    stale = []
    for name, content in GENERATED.items():
        path = ROOT / name
        current = path.read_text(encoding="utf-8") if path.exists() else ""
        try:
            wanted = content(current)
        except ValueError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        if wanted != current:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(wanted, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"out of date, run make generate: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
