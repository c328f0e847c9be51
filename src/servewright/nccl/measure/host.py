"""What the host and its NCCL library are. Nothing here names the host."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from .forks import Pipe

_QUERY = "name,driver_version,memory.total,memory.used"


def _command(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def content(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def facts() -> dict[str, Any]:
    """GPUs, driver, topology and what the kernel says about the IOMMU."""
    rows = [
        [field.strip() for field in line.split(",")]
        for line in _command("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits").splitlines()
    ]
    rows = [row for row in rows if len(row) == 4]
    matrix, *_ = re.sub(r"\x1b\[[0-9;]*m", "", _command("nvidia-smi", "topo", "-m")).split("Legend:")
    words = [word for word in content("/proc/cmdline").split() if "iommu" in word or word.startswith("pci=")]
    kinds = Counter(content(group).strip() or "unknown" for group in Path("/sys/kernel/iommu_groups").glob("*/type"))
    return {
        "gpus": [row[0] for row in rows],
        "driver": rows[0][1] if rows else None,
        "memory_mib": [int(row[2]) if row[2].isdigit() else None for row in rows],
        "used_mib": [int(row[3]) if row[3].isdigit() else None for row in rows],
        "topology": [line.rstrip() for line in matrix.splitlines() if line.strip()],
        "iommu": {"command_line": words, "groups": dict(kinds)},
        "kernel": re.split(r"[^\d.]", platform.release())[0],
        "cpus": os.cpu_count(),
    }


def iommu_words(facts: dict[str, Any]) -> str:
    iommu = facts["iommu"]
    groups = ", ".join(f"{count} groups of type {kind}" for kind, count in sorted(iommu["groups"].items()))
    return f"kernel command line: {' '.join(iommu['command_line']) or 'says nothing'}; IOMMU: {groups or 'no groups'}"


def configuration_files() -> dict[str, list[str]]:
    """NCCL also reads its settings from files, and those never show in an environment."""
    found = {}
    own = os.environ.get("NCCL_CONF_FILE") or Path("~/.nccl.conf").expanduser()
    for name, path in (("user's file", own), ("/etc/nccl.conf", "/etc/nccl.conf")):
        lines = [line.strip() for line in content(path).splitlines() if line.strip() and not line.startswith("#")]
        if lines:
            found[name] = lines
    return found


def digest(path: str) -> str | None:
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


class _SymbolInfo(ctypes.Structure):
    """What dladdr tells (dlfcn.h)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def library(torch: Any, pipe: Pipe) -> None:
    """Told by a fork, because it has to touch the GPU."""
    facts = {"torch": torch.__version__, "python": platform.python_version(), "cuda": torch.version.cuda}
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        found = loaded_nccl()
        facts["nccl"], facts["library"] = found or ("unknown", None)
    facts["count"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
    facts["visible"] = [torch.cuda.get_device_name(index) for index in range(facts["count"])]
    facts["capability"] = [list(torch.cuda.get_device_capability(index)) for index in range(facts["count"])]
    pipe.tell(facts=facts)


def loaded_nccl() -> tuple[str, str] | None:
    """Version and path of the NCCL that torch's calls reach in this process.

    torch.cuda.nccl.version() is that of torch's build, and with LD_PRELOAD two libraries are mapped. So the symbol is
    looked up as the linker did for torch: first in the global scope, then among what torch's library needs.
    """
    torch_libraries = [line.split()[-1] for line in content("/proc/self/maps").splitlines() if "libtorch_cuda." in line]
    for scope in (None, *torch_libraries[:1]):
        try:
            library = ctypes.CDLL(scope)
            get = library.ncclGetVersion
        except (OSError, AttributeError):
            continue
        code, info = ctypes.c_int(), _SymbolInfo()
        get(ctypes.byref(code))
        ctypes.CDLL(None).dladdr(ctypes.cast(get, ctypes.c_void_p), ctypes.byref(info))
        number = code.value
        base = 10000 if number >= 10000 else 1000  # 2.9 changed the encoding
        version = f"{number // base}.{number % base // 100}.{number % 100}"
        return version, (info.file or b"").decode()
    return None
