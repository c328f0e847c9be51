"""The record of a bench: what was measured, where, when and with what."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/measured/bench"


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
