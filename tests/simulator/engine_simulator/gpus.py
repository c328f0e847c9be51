"""The simulated GPUs: what the host has, and how much memory each process holds.

Every worker writes a file named after its pid; nvidia-smi adds up the files of living processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from . import host

DEFAULT = {
    "count": 8,
    "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "memory_mib": 97887,
    "compute_cap": "12.0",
    "driver": "580.95.05",
}
#: /run is read-only for a unit with ProtectSystem=strict, /dev is not, as with the real device files.
LEDGERS = ("run/simulator/gpu", "dev/simulator-gpu")


def facts() -> dict[str, Any]:
    """/etc/simulator/gpus.json over the defaults: count, name, memory_mib, compute_cap, driver."""
    file = host.root() / "etc/simulator/gpus.json"
    return {**DEFAULT, **(json.loads(file.read_text()) if file.is_file() else {})}


def uuid_of(index: int) -> str:
    return f"GPU-51000000-0000-4000-8000-{index:012x}"


def visible(environment: Mapping[str, str]) -> list[int]:
    """Indices a process may use, in the order of CUDA_VISIBLE_DEVICES (indices or UUIDs)."""
    count = int(facts()["count"])
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(range(count))
    known = {uuid_of(index): index for index in range(count)}
    chosen: list[int] = []
    for item in (part.strip() for part in text.split(",")):
        index = known.get(item, int(item) if item.isdigit() else -1)
        if not 0 <= index < count:
            break  # CUDA ignores everything from the first invalid entry on
        chosen.append(index)
    return chosen


def _still_lingers(file: pathlib.Path, entry: dict[str, Any]) -> bool:
    """Memory of a dead process that the driver has not given back yet.

    Nobody sees the moment of death, so the first look at the dead process starts the clock.
    """
    linger = float(entry.get("linger", 0))
    if not linger:
        return False
    if "dead_since" not in entry:
        entry["dead_since"] = time.time()
        with contextlib.suppress(OSError):
            file.write_text(json.dumps(entry))
    return time.time() - float(entry["dead_since"]) < linger


def entries() -> list[dict[str, Any]]:
    """What the ledgers hold: {"pid": int, "alive": bool, "mib": {index: MiB}}, the dead only while they linger."""
    found = []
    for ledger in LEDGERS:
        for file in sorted((host.root() / ledger).glob("*")):
            if not file.name.isdigit():
                continue
            try:
                entry = json.loads(file.read_text())
            except (OSError, ValueError):
                continue  # being written or already gone
            born = host.start_time(int(file.name))
            alive = born is not None and entry.get("start_time", born) == born
            if alive or _still_lingers(file, entry):
                mib = {int(k): int(v) for k, v in entry.items() if k.isdigit()}
                found.append({"pid": int(file.name), "alive": alive, "mib": mib})
    return found


def used_by_others(index: int) -> int:
    """MiB on this GPU held by other processes, or not yet given back by dead ones."""
    return sum(e["mib"].get(index, 0) for e in entries() if e["pid"] != os.getpid())


def hold(mib_by_index: Mapping[int, int], linger: float) -> None:
    """Record what this process holds; replaces its earlier entry. `linger`: seconds it outlives the process."""
    record: dict[str, Any] = {str(index): mib for index, mib in mib_by_index.items()}
    record["start_time"] = host.start_time(os.getpid())
    if linger:
        record["linger"] = linger
    for ledger in LEDGERS:
        folder = host.root() / ledger
        if not os.access(folder, os.W_OK):
            continue
        temporary = folder / f".{os.getpid()}"
        temporary.write_text(json.dumps(record))
        temporary.chmod(0o644)
        temporary.replace(folder / str(os.getpid()))
        return


def release() -> None:
    """Forget this process's entry, as a clean exit does at once."""
    for ledger in LEDGERS:
        file = pathlib.Path(host.root() / ledger / str(os.getpid()))
        if file.exists():
            file.unlink()
