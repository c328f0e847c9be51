"""What a bench measured, for people and for programs."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/measured"


def options(name: str, description: str, repeats: int) -> argparse.ArgumentParser:
    """The options that every bench has."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=description)
    parser.add_argument("--repeats", type=int, default=repeats, help="counted rounds (default: %(default)s)")
    parser.add_argument("--record", type=Path, default=FOLDER / f"{name}.json", help="where to write the record")
    return parser


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown that is also good to read in a terminal."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def load() -> list[float]:
    """Load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def write(path: Path, **facts: Any) -> None:
    """Write what was measured, where, when and with what; figures are rounded to milliseconds."""
    description = ["git", "describe", "--always", "--dirty"]
    record = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": subprocess.run(description, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip(),
        "machine": {
            "processors": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "kernel": platform.release(),
        },
        "python": platform.python_version(),
        "ansible_core": version("ansible-core"),
        "load_after": load(),
        **facts,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_rounded(record), indent=1) + "\n", encoding="utf-8")
    print(f"\nrecord: {path}")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
