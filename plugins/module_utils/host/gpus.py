"""GPUs, read with nvidia-smi."""

from __future__ import annotations

import re
import time

from . import proc
from .commands import run
from .errors import HostError

# Memory that a GPU without any client shows as used (driver reservation); what is above it belongs to somebody.
IDLE_MIB = 1024


# Exit codes with which it has answered: nvidia-smi(1), RETURN VALUE. With 14 the infoROM of a GPU is corrupted, which a
# line of its own names; the GPU computes all the same (NVIDIA/gpu-operator#20, pytorch/pytorch#87464).
_ANSWERED = (0, 14)
_FACTS = ("index", "uuid", "name", "memory.total", "memory.used", "compute_cap", "driver_version", "pci.bus_id")


def query():
    """The GPUs of this host by index: uuid, name, memory in MiB (total, used), compute capability, driver version, PCI
    address as the kernel writes it (place), and the lines by which nvidia-smi warns of it.

    Raises HostError with nvidia-smi's own message (for instance a driver and library that do not match).
    """
    answered, text = _ask("gpu", _FACTS)
    if not answered:
        raise HostError(f"nvidia-smi: {text.strip()}")
    gpus = {}
    for index, uuid, name, total, used, capability, driver, bus_id in _rows(text, _FACTS):
        gpus[int(index)] = {
            "uuid": uuid,
            "name": name,
            "total_mib": _number(total),
            "used_mib": _number(used),
            "compute_capability": capability,
            "driver": driver,
            "place": place(bus_id),
            "warnings": [
                line for line in text.splitlines() if line.startswith("WARNING") and place(bus_id) in line.lower()
            ],
        }
    return gpus


def place(bus_id):
    """A PCI address as the kernel writes it; nvidia-smi gives the domain eight digits."""
    return re.sub("^0000(?=[0-9a-f]{4}:)", "", bus_id.lower())


def _ask(what, fields):
    """Whether nvidia-smi has answered a query, and all it printed."""
    words = [f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    done = run(["nvidia-smi", *words], check=False)
    return done.returncode in _ANSWERED, done.stdout + done.stderr


def _rows(text, fields):
    """Rows of these fields, of which the first is a number, told by that from warnings and rows that name nobody."""
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    return [row for row in rows if len(row) == len(fields) and row[0].isdigit()]


HEALTH = (
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
    fields = ("index", *HEALTH)
    answered, text = _ask("gpu", fields)
    return {int(row[0]): dict(zip(HEALTH, row[1:])) for row in _rows(text, fields)} if answered else {}


def topology(*words):
    """What `nvidia-smi topo` prints; empty text when it fails."""
    done = run(["nvidia-smi", "topo", *words], check=False)
    return done.stdout if done.returncode in _ANSWERED else ""


def _number(text):
    try:
        return int(float(text))
    except ValueError:  # "[N/A]" on devices that share memory with the host
        return 0


def clients():
    """Processes that hold GPU memory: a list of (pid, uuid, MiB), without those that nvidia-smi gives no pid of.

    Raises HostError with nvidia-smi's own message.
    """
    fields = ("pid", "gpu_uuid", "used_memory")
    answered, text = _ask("compute-apps", fields)
    if not answered:
        raise HostError(f"nvidia-smi: {text.strip()}")
    return [(int(pid), uuid, _number(used)) for pid, uuid, used in _rows(text, fields)]


def busy(indices):
    """What holds the claimed GPUs, as text for a person, one entry a GPU; empty when all are free."""
    all_gpus = query()
    # Not an error: after a boot some come seconds later than others.
    listed = ", ".join(map(str, sorted(all_gpus))) or "none"
    missing = [f"GPU {i} is not there: nvidia-smi lists {listed}" for i in sorted(set(indices) - set(all_gpus))]
    crowded = [index for index in indices if index in all_gpus and all_gpus[index]["used_mib"] > IDLE_MIB]
    holders = clients() if crowded else []
    return missing + [f"GPU {index}: {_held(all_gpus[index], holders)}" for index in crowded]


def _held(gpu, holders):
    """Who holds the memory of a GPU that is in use, as text for a person."""
    mine = [(pid, used) for pid, uuid, used in holders if uuid == gpu["uuid"]]
    rest = gpu["used_mib"] - sum(used for _pid, used in mine)
    named = [f"{proc.describe(pid)} with {used} MiB" for pid, used in mine]
    return "; ".join(named + [f"{rest} MiB in use, and no process is named for it"] * (rest > IDLE_MIB))


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
