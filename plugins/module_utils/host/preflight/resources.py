"""What a start takes from the host: shared memory, memory, limits, a clock."""

from __future__ import annotations

import os
import pwd
import re
import time

from .. import arguments, commands, proc, systemd
from ..errors import HostError
from . import unit_override
from .check import fatal, passed, warning

SHM = "/dev/shm"
MIB, GIB = 1 << 20, 1 << 30
# One NCCL channel to one peer over shared memory: 9637888 bytes in reports (NVIDIA/nccl#342), the sum of the buffers of
# the three protocols. A ring has two peers.
NCCL_CHANNEL_BYTES = 9637888
PEERS = 2
DEFAULT_CHANNELS = 2
# Segments of the engine itself: SGLang 0.5.23 24 MiB a queue, vLLM 0.32.0 psm_* of 168 and 252 MB that are sparse.
ENGINE_BYTES = 64 * MIB
# vLLM keeps KV cache that it offloads in one file of /dev/shm for each data parallel rank, and ends when there is no
# room (0.32.0: v1/kv_offload/cpu/shared_offload_region.py, and check_shm_free_space; versions as in shm.PATTERNS). On a
# CPU, and with its other connectors, it does not.
OFFLOAD_SINCE = (0, 26)
OFFLOAD_CONNECTOR = "OffloadingConnector"
PROCESS_BYTES = 2 * GIB  # of one engine process, beside weights on the GPU: 0.5 to 1.6 GB on a CPU, more with CUDA


def shared_memory(subject):
    """/dev/shm has room for NCCL's channels and offloaded KV cache, once the service that is replaced has let go."""
    release = subject.release
    ranks, offloaded = len(release["gpus"]), _offloaded(release)
    if ranks < 2 and not offloaded:
        return []
    peers = PEERS if ranks > 1 else 0
    channels = max(
        [
            DEFAULT_CHANNELS,
            *(_int(release["environment"].get(name)) for name in ("NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS")),
        ]
    )
    cache = release["parallelism"]["data"] * offloaded
    need = ranks * peers * channels * NCCL_CHANNEL_BYTES + ENGINE_BYTES + cache
    least = ranks * peers * NCCL_CHANNEL_BYTES + offloaded
    large = (2 * (need - cache) + cache) // MIB
    own = _own_size(release)
    state = os.statvfs(SHM)
    size = own or state.f_blocks * state.f_frsize
    free = own or state.f_bavail * state.f_frsize + _held(release["user"])
    evidence = {"size_bytes": size, "free_bytes": free, "need_bytes": need}
    says = f"{SHM} has {free // MIB} of {size // MIB} MiB free, this needs about {need // MIB} MiB"
    if cache:
        evidence["offloaded_bytes"] = cache
        says += f", {cache // MIB} of them for offloaded KV cache"
    if free < least:
        repair = f"mount -o remount,size={large}M {SHM}, and in /etc/fstab"
        if own or size > need:
            repair = "declare a larger shared_memory_size" if own else f"remove dead files in {SHM}"
        return [fatal(says, repair, **evidence)]
    if free < need:
        return [warning(says, f"make it larger: mount -o remount,size={large}M {SHM}", **evidence)]
    return [passed(says, **evidence)]


def _offloaded(release):
    """Bytes of KV cache that each data parallel rank of the engine keeps in /dev/shm, all its GPUs together."""
    version = tuple(int(part) for part in re.findall(r"\d+", release["version"])[:2])
    if release["engine"] != "vllm" or version < OFFLOAD_SINCE or not release["gpus"]:
        return 0
    size = arguments.number(release, "--kv-offloading-size")
    if size:  # it stands above the mapping
        backend = arguments.value(release, "--kv-offloading-backend") or "native"
        simple = _int(release["environment"].get("VLLM_USE_SIMPLE_KV_OFFLOAD"))
        return int(size * GIB) if backend == "native" and not simple else 0
    transfer = arguments.mapping(release, "--kv-transfer-config")
    more = transfer.get("kv_connector_extra_config")
    size = more.get("cpu_bytes_to_use") if isinstance(more, dict) else None
    return int(size) if transfer.get("kv_connector") == OFFLOAD_CONNECTOR and isinstance(size, (int, float)) else 0


def _own_size(release):
    """Bytes of a /dev/shm of the service's own, or 0 when it uses that of the host."""
    found = re.search(r"^TemporaryFileSystem=/dev/shm:size=(\d+)([MG])", release["unit"], re.MULTILINE)
    return int(found.group(1)) * {"M": MIB, "G": GIB}[found.group(2)] if found else 0


def _held(user):
    """Bytes of a user's files there: those of a service that will have been stopped and cleaned up."""
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        return 0
    total = 0
    for entry in os.scandir(SHM):
        try:
            state = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        total += state.st_blocks * 512 if state.st_uid == uid else 0
    return total


def _int(text):
    return int(text) if text and text.isdigit() else 0


def memory(subject):
    """There is memory for the engine's processes, once the service that is replaced has stopped."""
    release = subject.release
    with open("/proc/meminfo") as stream:
        fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in stream if line.split()[1].isdigit()}
    free = fields["MemAvailable"]
    for unit in subject.freed:
        for pid in systemd.pids(systemd.show(unit)["ControlGroup"]):
            free += proc.private_bytes(pid)
    need = (max(1, len(release["gpus"])) + 1) * PROCESS_BYTES
    evidence = {"free_bytes": free, "need_bytes": need}
    says = f"{free / GIB:.1f} GiB of memory are free, the engine's processes take about {need / GIB:.0f} GiB"
    return [warning(says, "stop what else runs here", **evidence)] if free < need else [passed(says, **evidence)]


def limits(subject):
    """The unit lifts the limits that engines run into; systemd knows nothing of limits.conf."""
    unit, origin = unit_override.effective(subject.release)
    found = []
    if unit.get("Service.LimitMEMLOCK") != "infinity":
        repair = unit_override.repair(origin, "Service.LimitMEMLOCK")
        found.append(fatal("the unit does not set LimitMEMLOCK=infinity, and pinned memory fails", repair))
    files, most = subject.release["limits"]["open_files"], proc.most_open_files()
    if most and files > most:
        found.append(
            warning(f"the kernel grants {most} open files at most, declared are {files}", f"declare at most {most}")
        )
    return found


def clock(subject):
    """The clock is right: history and certificates depend on it."""
    now, found = time.time(), []
    newest = max(
        (os.stat(path).st_mtime for path in ("/etc/machine-id", "/var/lib/dpkg/status") if os.path.exists(path)),
        default=0,
    )
    if now + 60 < newest or now < 1.7e9:
        found.append(
            warning(
                "the clock is behind the host's own files: {}".format(
                    time.strftime("%Y-%m-%d %H:%M", time.gmtime(now))
                ),
                "set it, and turn NTP on",
            )
        )
    try:
        done = commands.run(["timedatectl", "show", "-p", "NTPSynchronized", "-p", "NTP"], check=False).stdout.split()
    except HostError:
        return found
    if "NTP=yes" in done and "NTPSynchronized=no" in done:
        found.append(warning("NTP is on, but the clock is not synchronised", "see timedatectl"))
    return found
