"""GPUs, read with nvidia-smi."""

from __future__ import annotations

import time

from . import proc
from .commands import run
from .errors import HostError

# Memory that a GPU without any client shows as used (driver reservation); what is above it belongs to somebody.
IDLE_MIB = 1024


def query():
    """The GPUs of this host by index: uuid, name, memory in MiB (total, used), compute capability, driver version.

    Raises HostError with nvidia-smi's own message (for instance a driver and library that do not match).
    """
    fields = "index,uuid,name,memory.total,memory.used,compute_cap,driver_version"
    done = run(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits"], check=False)
    if done.returncode != 0:
        raise HostError(f"nvidia-smi: {(done.stdout + done.stderr).strip()}")
    gpus = {}
    for line in done.stdout.splitlines():
        index, uuid, name, total, used, capability, driver = [part.strip() for part in line.split(",")]
        gpus[int(index)] = {
            "uuid": uuid,
            "name": name,
            "total_mib": _number(total),
            "used_mib": _number(used),
            "compute_capability": capability,
            "driver": driver,
        }
    return gpus


HEALTH = (
    "pci.bus_id",
    "persistence_mode",
    "mig.mode.current",
    "ecc.errors.uncorrected.volatile.total",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
)


def health():
    """State of the GPUs by index: the fields of HEALTH as text; a field that a GPU lacks reads "[N/A]".

    A driver that does not know a field gives no health at all: an empty mapping.
    """
    fields = ",".join(("index", *HEALTH))
    done = run(["nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits"], check=False)
    rows = [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()]
    rows = [row for row in rows if len(row) == len(HEALTH) + 1 and row[0].isdigit()]
    return {int(row[0]): dict(zip(HEALTH, row[1:])) for row in rows} if done.returncode == 0 else {}


def topology(*words):
    """What `nvidia-smi topo` prints; empty text when it fails."""
    done = run(["nvidia-smi", "topo", *words], check=False)
    return done.stdout if done.returncode == 0 else ""


def _number(text):
    try:
        return int(float(text))
    except ValueError:  # "[N/A]" on devices that share memory with the host
        return 0


def clients():
    """Processes that hold GPU memory: a list of (pid, uuid, MiB)."""
    out = run(["nvidia-smi", "--query-compute-apps=pid,gpu_uuid,used_memory", "--format=csv,noheader,nounits"]).stdout
    rows = [[part.strip() for part in line.split(",")] for line in out.splitlines() if line.count(",") == 2]
    return [(int(pid), uuid, _number(used)) for pid, uuid, used in rows]


def busy(indices):
    """What holds the claimed GPUs, as text for a person, one entry a GPU; empty when all are free."""
    all_gpus = query()
    # Not an error: after a boot some come seconds later than others.
    listed = ", ".join(map(str, sorted(all_gpus))) or "none"
    missing = [f"GPU {i} is not there: nvidia-smi lists {listed}" for i in sorted(set(indices) - set(all_gpus))]
    crowded = [index for index in indices if index in all_gpus and all_gpus[index]["used_mib"] > IDLE_MIB]
    held = {}
    for pid, uuid, used in clients() if crowded else []:
        held.setdefault(uuid, []).append(f"{proc.describe(pid)} with {used} MiB")
    nobody = "{} MiB in use, and no process is named for it"
    return missing + [
        "GPU {}: {}".format(index, "; ".join(held.get(gpu["uuid"], [nobody.format(gpu["used_mib"])])))
        for index, gpu in ((index, all_gpus[index]) for index in crowded)
    ]


def wait_free(indices, timeout, note=lambda text: None):
    """Wait until nothing holds the given GPUs. Raises HostError that names the holders after `timeout` seconds."""
    end = time.monotonic() + timeout
    while True:
        found = busy(indices)
        if not found:
            return
        note("; ".join(found))
        if time.monotonic() >= end:
            raise HostError("the GPUs are not free after {:g} s: {}".format(timeout, "; ".join(found)))
        time.sleep(0.5)
