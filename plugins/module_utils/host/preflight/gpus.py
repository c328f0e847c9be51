"""The claimed GPUs: there, as declared, healthy, and held by nobody else."""

from __future__ import annotations

import os
import re

from .. import commands, gpus, proc
from .check import fatal, passed, warning
from .gpu_facts import INFOROM, NVML_FAILURES, XIDS

# Lines of the kernel log that are read, the last ones: PCIe errors that the bus corrects can fill it with millions.
LOG_LINES = 100000
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+),?\s*(.*)")


def driver(subject):
    """The driver answers. One whose library was upgraded under it lets what runs go on, and nothing start again."""
    if not subject.release["gpus"]:
        return []
    if subject.gpu_failure:
        return [
            fatal(subject.gpu_failure, next((fix for text, fix in NVML_FAILURES if text in subject.gpu_failure), ""))
        ]
    versions = {gpu["driver"] for gpu in subject.gpus.values()}
    return [passed(f"{len(subject.gpus)} GPUs, driver {', '.join(sorted(versions))}", count=len(subject.gpus))]


def claim(subject):
    """The claimed GPUs are there, and held by nobody but what will be ended."""
    claimed = subject.release["gpus"]
    if not claimed or subject.gpu_failure:
        return []
    missing = sorted(set(claimed) - set(subject.gpus))
    if missing:
        return [
            fatal(
                "GPU {} is not there; nvidia-smi lists {}".format(
                    ", ".join(map(str, missing)), ", ".join(map(str, sorted(subject.gpus))) or "none"
                ),
                "claim GPUs that are there; a GPU that has gone needs a reboot",
            )
        ]
    found, known = [], dict.fromkeys(claimed, 0)
    index_of = {gpu["uuid"]: index for index, gpu in subject.claimed.items()}
    for pid, uuid, mib in gpus.clients():
        index = index_of.get(uuid)
        if index is None:
            continue
        known[index] += mib
        unit = proc.unit(pid)
        if not subject.ends(pid):
            found.append(
                fatal(
                    f"GPU {index} is held by {proc.describe(pid)} with {mib} MiB",
                    f"claim other GPUs, or stop it for good (systemctl disable --now {unit})"
                    if unit.endswith(".service")
                    else "claim other GPUs, or end that process",
                    pid=pid,
                    unit=unit,
                    gpu=index,
                    mib=mib,
                )
            )
    for index, gpu in subject.claimed.items():
        nobody = gpu["used_mib"] - known[index]
        if nobody > gpus.IDLE_MIB:
            message = f"{nobody} MiB of GPU {index} are in use, and no process is named for it"
            found.append(warning(message, "look for processes of other containers, or that died and linger", gpu=index))
    return found


def as_declared(subject):
    """Count, model and compute capability are what servewright_host declares; and no GPU is missing, which would shift
    the numbers of the others."""
    declared = subject.release.get("host", {})
    if not subject.gpus:
        return []
    found, there = [], len(subject.gpus)
    if declared.get("gpus") not in (None, there):
        found.append(
            fatal(
                f"nvidia-smi lists {there} GPUs, servewright_host declares {declared['gpus']}",
                "a GPU that has gone needs a reboot, and renumbers the others; else correct servewright_host",
            )
        )
    nodes = "/proc/driver/nvidia/gpus"
    bound = len(os.listdir(nodes)) if os.path.isdir(nodes) else there
    if bound > there:
        found.append(
            fatal(
                f"the driver has bound {bound} GPUs, nvidia-smi lists {there}: one has fallen off the bus",
                "reboot the host, then look at its seat and power",
            )
        )
    for index, gpu in subject.claimed.items():
        for name, key in (("gpu_model", "name"), ("compute_capability", "compute_capability")):
            if declared.get(name) not in (None, gpu[key]):
                found.append(
                    fatal(
                        f"GPU {index} is {gpu[key]!r}, servewright_host.{name} declares {declared[name]!r}",
                        "correct servewright_host, or claim other GPUs",
                    )
                )
    return found


def health(subject):
    """nvidia-smi warns of no claimed GPU; they have no uncorrected memory errors, run with all their lanes, and stay
    initialised."""
    found = [
        warning(f"GPU {index}: nvidia-smi says {line!r}", INFOROM, gpu=index)
        for index, gpu in subject.claimed.items()
        for line in gpu["warnings"]
    ]
    states = {index: subject.gpu_health[index] for index in subject.claimed if index in subject.gpu_health}
    # What a link can be counts: idle GPUs slow theirs down.
    generations = {i: state["pcie.link.gen.max"] for i, state in states.items() if state["pcie.link.gen.max"].isdigit()}
    best = max(generations.values(), default="")
    for index, state in states.items():
        if state["ecc.errors.uncorrected.volatile.total"] not in ("0", "[N/A]", "N/A", "[Not Supported]"):
            count = state["ecc.errors.uncorrected.volatile.total"]
            message = f"GPU {index} has {count} uncorrected memory errors since the driver was loaded"
            found.append(warning(message, "reset it or reboot; when they come again, have it replaced", gpu=index))
        width, most = state["pcie.link.width.current"], state["pcie.link.width.max"]
        if width.isdigit() and most.isdigit() and int(width) < int(most):
            message = f"GPU {index} runs with {width} of {most} PCIe lanes"
            found.append(warning(message, "look at its slot, riser and the BIOS", gpu=index))
        if generations.get(index, best) < best:
            message = f"GPU {index} has PCIe generation {generations[index]}, others have {best}"
            found.append(warning(message, "look at its slot, riser and the BIOS", gpu=index))
        if state["persistence_mode"] == "Disabled":
            message = f"GPU {index} has no persistence mode: each start waits seconds for the driver"
            found.append(warning(message, "systemctl enable --now nvidia-persistenced", gpu=index))
        if state["mig.mode.current"] == "Enabled":
            message = f"GPU {index} is divided (MIG): its number names no whole GPU"
            found.append(warning(message, "turn MIG off, or claim another one", gpu=index))
    if found or not states:
        return found
    pcie = sorted({f"{s['pcie.link.gen.max']}.0 x{s['pcie.link.width.current']}" for s in states.values()})
    return [passed("PCIe {}".format(", ".join(pcie)), pcie=pcie)]


def xids(subject):
    """The kernel log has no errors of the hardware of the claimed GPUs since the boot."""
    if not subject.claimed:
        return []
    places = {gpu["place"].split(".")[0]: index for index, gpu in subject.gpus.items()}
    read = ["journalctl", "-k", "-b", "-n", str(LOG_LINES), "-o", "cat", "--no-pager"]
    log = commands.run(read, check=False).stdout.splitlines()
    when = "since the boot" if len(log) < LOG_LINES else f"in the last {LOG_LINES} lines of the kernel log"
    seen = {}
    for line in log:
        match = _XID.search(line)
        index = places.get(gpus.place(match.group(1)).split(".")[0]) if match else None
        if match and (index in subject.claimed or index is None) and int(match.group(2)) in XIDS:
            seen.setdefault((match.group(1), index, int(match.group(2))), []).append(match.group(3))
    found = []
    for (place, index, number), lines in seen.items():
        meaning, repair = XIDS[number]
        what = f"GPU {index}" if index is not None else f"a GPU at {place}"
        message = f"{what} had Xid {number} ({meaning}) {len(lines)} times {when}"
        found.append(warning(message, repair, last=lines[-1][:200]))
    return found
