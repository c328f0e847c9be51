"""Write requirements-dev.txt: the exact versions that `make` installs, for every supported Python.

Run by `make lock` after a change of the dependencies in pyproject.toml. pip resolves for the other Pythons
too, so one machine with one Python is enough.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# ansible-core stops supporting old controllers now and then, so the newest that runs on a Python differs.
# The last entry also stands for every newer Python.
PYTHONS = ("3.11", "3.12")


def resolve(python: str, requirements: list[str]) -> dict[str, str]:
    """Newest versions, by distribution name, that satisfy the requirements on that Python."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed",
             "--only-binary", ":all:", "--python-version", python, "--target", folder,
             "--report", report, *requirements],
            check=True,
        )  # fmt: skip
        installed = json.loads(report.read_text())["install"]
    return {item["metadata"]["name"].lower(): item["metadata"]["version"] for item in installed}


def marker(name: str, version: str, locked: dict[str, dict[str, str]]) -> str:
    """Environment marker that picks the Pythons where ``name`` has ``version``; empty for all of them."""
    chosen = [python for python in PYTHONS if locked[python].get(name) == version]
    if len(chosen) == len(PYTHONS):
        return ""
    clauses = [f"python_version {'>=' if python == PYTHONS[-1] else '=='} '{python}'" for python in chosen]
    return f" ; {' or '.join(clauses)}"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + project["optional-dependencies"]["dev"]
    locked = {python: resolve(python, requirements) for python in PYTHONS}
    pins = sorted({pin for versions in locked.values() for pin in versions.items()})
    lines = [f"{name}=={version}{marker(name, version, locked)}" for name, version in pins]
    header = "# Written by `make lock` from pyproject.toml; do not edit."
    (ROOT / "requirements-dev.txt").write_text("\n".join([header, *lines]) + "\n")


if __name__ == "__main__":
    main()
