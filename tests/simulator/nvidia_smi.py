"""nvidia-smi of the engine simulator (a test double): reports simulated GPUs.

Understands: no argument, -L, -i/--id, --query-gpu=..., --query-compute-apps=..., --format=csv[,noheader][,nounits],
topo -m, topo -p2p r. /etc/simulator/nvidia-smi.json makes it fail: {"mismatch": true}, {"hide": [3]}, {"hang": true},
{"lost": 3}; {"inforom": 3} adds a warning; {"fields": {"3": {"persistence_mode": "Disabled"}}} changes what a GPU
reports, {"link": "NV18"} and {"p2p": "CNS"} how all GPUs are linked.
Formats and exit codes follow driver 580.159.04 on an H200; those of the warning NVIDIA/gpu-operator#20 and
pytorch/pytorch#87464.
"""

from __future__ import annotations

import json
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Any

from engine_simulator import gpus, host

RESERVED_MIB = 602  # what the driver keeps: used and free do not add up to total
Gpu = dict[str, Any]


def fields() -> dict[str, tuple[str, str, Callable[[Gpu], Any]]]:
    """Field -> name in the header, unit, value."""

    def constant(value: Any) -> Callable[[Gpu], Any]:
        return lambda gpu: value

    facts = gpus.facts()
    return {
        "index": ("index", "", lambda g: g["index"]),
        "uuid": ("uuid", "", lambda g: gpus.uuid_of(g["index"])),
        "gpu_uuid": ("uuid", "", lambda g: gpus.uuid_of(g["index"])),
        "name": ("name", "", constant(facts["name"])),
        "gpu_name": ("name", "", constant(facts["name"])),
        "count": ("count", "", constant(facts["count"])),
        "memory.total": ("memory.total", "MiB", constant(facts["memory_mib"])),
        "memory.used": ("memory.used", "MiB", lambda g: g["used"]),
        "memory.free": ("memory.free", "MiB", lambda g: max(0, facts["memory_mib"] - g["used"] - RESERVED_MIB)),
        "memory.reserved": ("memory.reserved", "MiB", constant(RESERVED_MIB)),
        "compute_cap": ("compute_cap", "", constant(facts["compute_cap"])),
        "driver_version": ("driver_version", "", constant(facts["driver"])),
        "pci.bus_id": ("pci.bus_id", "", lambda g: bus_id(g["index"])),
        "gpu_bus_id": ("pci.bus_id", "", lambda g: bus_id(g["index"])),
        "persistence_mode": ("persistence_mode", "", constant("Enabled")),
        "ecc.mode.current": ("ecc.mode.current", "", constant("Enabled")),
        "ecc.mode.pending": ("ecc.mode.pending", "", constant("Enabled")),
        "ecc.errors.uncorrected.volatile.total": ("ecc.errors.uncorrected.volatile.total", "", constant(0)),
        "ecc.errors.corrected.volatile.total": ("ecc.errors.corrected.volatile.total", "", constant(0)),
        "utilization.gpu": ("utilization.gpu", "%", constant(0)),
        "temperature.gpu": ("temperature.gpu", "", constant(34)),
        "power.draw": ("power.draw", "W", constant("84.12")),
        "power.limit": ("power.limit", "W", constant("600.00")),
        "mig.mode.current": ("mig.mode.current", "", constant("Disabled")),
        "compute_mode": ("compute_mode", "", constant("Default")),
        "pcie.link.gen.current": ("pcie.link.gen.current", "", constant(5)),
        "pcie.link.gen.max": ("pcie.link.gen.max", "", constant(5)),
        "pcie.link.width.current": ("pcie.link.width.current", "", constant(16)),
        "pcie.link.width.max": ("pcie.link.width.max", "", constant(16)),
    }


APP_FIELDS: dict[str, tuple[str, str, Callable[[Gpu], Any]]] = {
    "pid": ("pid", "", lambda app: app["pid"]),
    "gpu_uuid": ("gpu_uuid", "", lambda app: gpus.uuid_of(app["index"])),
    "gpu_bus_id": ("gpu_bus_id", "", lambda app: bus_id(app["index"])),
    "gpu_name": ("gpu_name", "", lambda app: gpus.facts()["name"]),
    "used_memory": ("used_gpu_memory", "MiB", lambda app: app["mib"]),
    "used_gpu_memory": ("used_gpu_memory", "MiB", lambda app: app["mib"]),
    "process_name": ("process_name", "", lambda app: process_name(app["pid"])),
    "name": ("process_name", "", lambda app: process_name(app["pid"])),
}


def bus_id(index: int) -> str:
    return f"00000000:{index * 0x10 + 1:02X}:00.0"


def process_name(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode() or "[Not Found]"
    except OSError:
        return "[Not Found]"


def csv(table: dict[str, tuple[str, str, Callable[[Gpu], Any]]], wanted: str, rows: list[Gpu], style: list[str]) -> int:
    names = [name.strip() for name in wanted.split(",")]
    changed = configured().get("fields", {})
    for name in names:
        if name not in table:
            print(f'Field "{name}" is not a valid field to query.\n')
            return 2
    if "noheader" not in style:
        print(", ".join(f"{table[n][0]} [{table[n][1]}]" if table[n][1] else table[n][0] for n in names))
    for row in rows:
        cells = []
        for name in names:
            _, unit, value = table[name]
            shown = changed.get(str(row.get("index")), {}).get(name, value(row))
            cells.append(f"{shown} {unit}" if unit and "nounits" not in style else str(shown))
        print(", ".join(cells))
    return 0


def visible_gpus(misbehaviour: dict[str, Any]) -> list[Gpu]:
    used: dict[int, int] = {}
    for entry in gpus.entries():
        for index, mib in entry["mib"].items():
            used[index] = used.get(index, 0) + mib
    hidden = misbehaviour.get("hide", [])
    return [{"index": i, "used": used.get(i, 0)} for i in range(int(gpus.facts()["count"])) if i not in hidden]


def apps(shown: list[Gpu]) -> list[Gpu]:
    """Processes on the shown GPUs; memory that lingers after its process belongs to nobody."""
    indices = {gpu["index"] for gpu in shown}
    return [
        {"pid": entry["pid"], "index": index, "mib": mib}
        for entry in gpus.entries()
        if entry["alive"]
        for index, mib in sorted(entry["mib"].items())
        if index in indices
    ]


def configured() -> dict[str, Any]:
    file = host.root() / "etc/simulator/nvidia-smi.json"
    return json.loads(file.read_text()) if file.is_file() else {}


def topology(shown: list[Gpu], own: str, other: str, matrix: bool) -> None:
    """`topo -m` underlines its header even in a pipe; `topo -p2p r` indents its rows."""
    names = [f"GPU{gpu['index']}" for gpu in shown]
    if matrix:
        print("\x1b[4m\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m")
    else:
        print(" \t" + "\t".join(names) + "\t")
    for row in names:
        cells = "\t".join(own if row == column else other for column in names)
        print(f"{row}\t{cells}\t0-47\t0\t\tN/A" if matrix else f" {row}\t{cells}\t")
    print("\nLegend:\n\n  X    = Self")


def overview(shown: list[Gpu]) -> None:
    facts = gpus.facts()
    line = "+" + "-" * 89 + "+"
    print(time.strftime("%a %b %e %H:%M:%S %Y") + "       \n" + line)
    driver = facts["driver"]
    print(f"| NVIDIA-SMI {driver:<22} Driver Version: {driver:<16} CUDA Version: 13.0     |\n{line}")
    for gpu in shown:
        memory = f"{gpu['used']}MiB / {facts['memory_mib']}MiB"
        print(f"| {gpu['index']:3d}  {facts['name'][:44]:<44} {bus_id(gpu['index'])}  {memory:>20} |")
    print(f"{line}\n\n{line}\n| Processes:{' ' * 78}|")
    found = apps(shown)
    for app in found:
        name = process_name(app["pid"])[:40]
        print(f"| {app['index']:4d}   N/A  N/A  {app['pid']:14d}      C   {name:<40}{app['mib']:>10}MiB |")
    if not found:
        print("|  No running processes found" + " " * 61 + "|")
    print(line)


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `nvidia-smi | head` ends quietly, as the real one does
    misbehaviour = configured()
    if misbehaviour.get("hang"):
        time.sleep(86400)
    if misbehaviour.get("mismatch"):
        print("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95")
        return 18
    if "lost" in misbehaviour:
        print(f"Unable to determine the device handle for GPU{misbehaviour['lost']}: {bus_id(3)[4:]}: Unknown Error")
        return 255
    code = answer(argv, misbehaviour)
    if "inforom" in misbehaviour and code == 0:
        print(f"WARNING: infoROM is corrupted at gpu {bus_id(misbehaviour['inforom'])[4:]}")
        return 14
    return code


def answer(argv: list[str], misbehaviour: dict[str, Any]) -> int:
    shown = visible_gpus(misbehaviour)
    if argv[:2] == ["topo", "-m"]:
        topology(shown, " X ", misbehaviour.get("link", "NODE"), True)
        return 0
    if argv[:3] == ["topo", "-p2p", "r"]:
        topology(shown, "X", misbehaviour.get("p2p", "OK"), False)
        return 0
    query: tuple[str, str] | None = None
    style: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-i", "--id"):
            chosen = (value if equals else words.pop(0)).split(",")
            shown = [g for g in shown if {str(g["index"]), gpus.uuid_of(g["index"]), bus_id(g["index"])} & set(chosen)]
            if not shown:
                print("No devices were found")
                return 6
        elif name in ("--query-gpu", "--query-compute-apps"):
            query = (name, value)
        elif name == "--format" and query is not None:
            style = [part.strip() for part in value.split(",")]
        elif name in ("-L", "--list-gpus"):
            for gpu in shown:
                print(f"GPU {gpu['index']}: {gpus.facts()['name']} (UUID: {gpus.uuid_of(gpu['index'])})")
            return 0
        else:
            print(f"ERROR: Option {word} is not recognized. Please run 'nvidia-smi -h'.\n")
            return 255
    if query is None:
        overview(shown)
        return 0
    if not shown:
        print("No devices were found")
        return 6
    if query[0] == "--query-gpu":
        return csv(fields(), query[1], shown, style)
    return csv(APP_FIELDS, query[1], apps(shown), style)
