"""Lines of NCCL's log that mean something to an operator, whatever their level. The first pattern that fits counts."""

from __future__ import annotations

import re


class Kind:
    """A kind of line: its name, what it means, what to do, and where it was read."""

    def __init__(self, id, pattern, meaning, todo, source):
        self.id = id
        self.pattern = re.compile(pattern)
        self.meaning = meaning
        self.todo = todo
        self.source = source


MESSAGES = (
    Kind(
        "segment-gone",
        r"attaching to shared memory segment /dev/shm/nccl-.*\(2\)",
        "A shared memory segment was removed while a process still needed it.",
        "look at what cleans /dev/shm, such as a cleanup step of another service or logind with RemoveIPC=yes",
        "vllm-project/vllm#18831",
    ),
    Kind(
        "shm-full",
        "(failed to extend|posix_fallocate|fallocate. Failed to extend|failed to create shared memory file)",
        "/dev/shm is full or too small for NCCL's buffers.",
        "free or enlarge /dev/shm; do not set NCCL_SHM_DISABLE, which hides this and is slow",
        "NVIDIA/nccl#290",
    ),
    Kind(
        "nothing-left-to-run",
        "[Nn]o algorithm/protocol",
        "NCCL_ALGO and NCCL_PROTO leave a collective without a way to run.",
        "list Ring in NCCL_ALGO, and LL or Simple in NCCL_PROTO",
        "NVIDIA/nccl#1709",
    ),
    Kind(
        "unknown-word",
        "(Unrecognized (element|prefix) token|All entries except the first must have a prefix)",
        "NCCL_ALGO or NCCL_PROTO holds a word NCCL cannot read, so no communicator starts.",
        "correct the word",
        "NCCL 2.30.7 src/graph/tuning.cc parseList",
    ),
    Kind(
        "p2p-disabled",
        "(P2P is disabled between|Could not enable P2P between|peer query failed between|Legacy IPC not supported)",
        "The driver does not allow P2P between two GPUs, so traffic takes host memory.",
        "check the IOMMU, PCIe ACS and the driver's P2P support on this host",
        "NCCL 2.30.7 src/graph/paths.cc, src/transport/p2p.cc",
    ),
    Kind(
        "peer-gone",
        "(Connection closed by remote peer|Connection reset by peer)",
        "Another rank went away; its own log holds the cause.",
        "read the logs of the other ranks",
        "NCCL 2.30.7 src/misc/socket.cc",
    ),
    Kind(
        "cuda-failure",
        "Cuda failure",
        "A CUDA call failed inside NCCL.",
        "read the error in the line; out of memory and a broken GPU are the usual ones",
        "NCCL 2.30.7 src/include/checks.h",
    ),
    Kind(
        "cumem-host-off",
        "cuMem host allocations do not appear to be working",
        "Host buffers go to /dev/shm instead of cuMem.",
        "allow NUMA calls (CAP_SYS_NICE in a container), or set NCCL_CUMEM_HOST_ENABLE=0",
        "NCCL 2.30.7 src/misc/cudawrap.cc",
    ),
    Kind(
        "value-changed",
        r"(Invalid NCCL_\w+ |Invalid value .* for NCCL_|User asked for a (minimum|maximum) of|is too low, leaving"
        r"|is larger than|is too big\. Limiting|is not a valid value)",
        "NCCL did not take a value as it was written.",
        "compare the value in the line with the declared one",
        "NCCL 2.30.7 src/graph/tuning.cc, src/graph/connect.cc, src/init.cc",
    ),
    Kind(
        "word-ignored",
        "(Unknown CTA policy|Unable to recognize NCCL_|unknown value '.*', defaulting)",
        "NCCL did not know a word and used its default.",
        "correct the word",
        "NCCL 2.30.7 src/init.cc, src/graph/topo.cc",
    ),
    Kind(
        "ll128-off",
        "Disabling LL128",
        "NCCL turned LL128 off for a kind of link.",
        "nothing, unless LL128 was declared",
        "NCCL 2.30.7 src/graph/tuning.cc",
    ),
)
