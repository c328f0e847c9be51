"""What of the host an engine's speed and start depend on; read from the kernel and from files, in some ms."""

from __future__ import annotations

import glob
import hashlib
import os
import re

from .. import drop_ins, files
from ..commands import run
from . import pci

# Settings of the kernel that have decided whether engines start, and how fast they are. Not those that it computes from
# the free memory of each boot (fs.file-max, kernel.threads-max, vm.min_free_kbytes).
SYSCTLS = (
    "fs.aio-max-nr",
    "fs.nr_open",
    "kernel.numa_balancing",
    "kernel.pid_max",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.yama.ptrace_scope",
    "net.core.somaxconn",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "vm.compaction_proactiveness",
    "vm.max_map_count",
    "vm.nr_hugepages",
    "vm.overcommit_memory",
    "vm.overcommit_ratio",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
)
# logind.conf(5): what ends processes or removes shared memory when a session ends.
_LOGIND = {"RemoveIPC": "yes", "KillUserProcesses": "no"}
_LOGIND_FOLDERS = ("/usr/lib/systemd", "/usr/local/lib/systemd", "/run/systemd", "/etc/systemd")
_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


def facts():
    """All facts by name; each is plain data."""
    return {
        "command_line": command_line(files.text("/proc/cmdline")),
        "driver": driver(),
        "iommu": iommu(),
        "acs": pci.acs(),
        "sysctl": sysctls(),
        "logind": logind(),
        "manager_environment": manager_environment(),
        "drop_ins": {path: digest(path) for path in drop_ins.of_many()},
    }


def command_line(text):
    """Parameters of the kernel, without those that name what is booted, which change with every update of it."""
    return [word for word in text.split() if not word.startswith(("BOOT_IMAGE=", "initrd=", "ostree="))]


def driver():
    """Version of the NVIDIA driver: of the module that is loaded, and of the library that a new process would load."""
    loaded = re.search(r"Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", files.text("/proc/driver/nvidia/version"))
    library = None
    for folder in _LIBRARIES:
        found = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)*)$", os.path.realpath(os.path.join(folder, "libcuda.so.1")))
        library = library or (found and found.group(1))
    return {"module": loaded and loaded.group(1), "library": library}


def iommu():
    """Whether there are IOMMU groups, and the kinds of translation they use.

    Not how many: there are more with each device that is plugged in. (Earlier versions recorded the number.)
    """
    kinds = {files.text(path).strip() for path in glob.glob("/sys/kernel/iommu_groups/*/type")}
    return {"groups": bool(glob.glob("/sys/kernel/iommu_groups/*")), "types": sorted(kinds)}


def sysctl_path(name):
    return "/proc/sys/" + name.replace(".", "/")


def sysctls():
    found = {name: files.text(sysctl_path(name)).split() for name in SYSCTLS}
    return {name: " ".join(words) for name, words in found.items() if words}


def logind():
    """Effective settings of logind.conf: the last line of the last file in the order of names counts."""
    names = {}
    for folder in _LOGIND_FOLDERS:  # a file hides those of its name in folders before it
        for path in glob.glob(folder + "/logind.conf.d/*.conf"):
            names[os.path.basename(path)] = path
    main = next((folder for folder in reversed(_LOGIND_FOLDERS) if os.path.isfile(folder + "/logind.conf")), "")
    settings = dict(_LOGIND)
    for path in [main + "/logind.conf", *(names[name] for name in sorted(names))]:
        for line in files.text(path).splitlines():
            name, equals, value = line.strip().partition("=")
            if equals and name.strip() in settings:
                settings[name.strip()] = value.strip()
    return settings


def manager_environment():
    """Digests of the variables that the manager hands to every service, by name."""
    out = run(["systemctl", "show-environment"]).stdout
    pairs = (line.partition("=") for line in out.splitlines() if "=" in line)
    return {name: hashlib.sha256(value.encode()).hexdigest() for name, _equals, value in pairs}


def digest(path):
    return hashlib.sha256(files.read_bytes(path) or b"").hexdigest()
