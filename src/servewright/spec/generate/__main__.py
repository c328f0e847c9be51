"""Write the files, or with --check only tell which are out of date: `python -m servewright.spec.generate`."""

from __future__ import annotations

import sys
from pathlib import Path

from servewright.release import planned
from servewright.spec.generate import page, role, schema

ROOT = Path(__file__).resolve().parents[4]

FILES = {
    "docs/reference/services.schema.json": schema.as_json,
    "docs/reference/services.md": page.page,
    "docs/reference/plan.schema.json": planned.schema,
    "roles/service/meta/argument_specs.yml": role.argument_specs,
    "roles/service/defaults/main.yml": role.defaults,
}


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write or check the files below the root of a checkout and give the exit code."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m servewright.spec.generate [--check]", file=sys.stderr)
        return 1
    if not (root / "pyproject.toml").exists():
        print("the files are part of a checkout of servewright, and this is an installed copy", file=sys.stderr)
        return 1
    contents = {root / name: make().encode() for name, make in FILES.items()}
    stale = [path for path, content in contents.items() if not path.exists() or path.read_bytes() != content]
    if arguments and stale:
        names = ", ".join(str(path.relative_to(root)) for path in stale)
        print(f"out of date, run make generate: {names}", file=sys.stderr)
        return 1
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
