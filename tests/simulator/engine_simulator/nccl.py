"""NCCL of a rank, as far as others see it: its library is mapped, and its log is written where NCCL_DEBUG_FILE says.

The log is one that NCCL wrote (tests/recordings/nccl), fitted to this process; the README says what is replaced.
"""

from __future__ import annotations

import mmap
import os
import pathlib
import re
from collections.abc import Mapping
from typing import IO

from . import host
from .launch import Launch
from .misbehaviour import Misbehaviour

LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
_SET = re.compile(r"(NCCL_\w+) set by environment to (.*?)(\.?)$")
_kept: list[object] = []  # a process keeps its mapping and its log open for as long as it lives


def start(launch: Launch, bad: Misbehaviour, rank: int) -> Log:
    """Load the library and start the communicator of a rank."""
    if not launch.on_gpu or launch.ranks < 2:
        return Log(None, [])
    last = rank == launch.ranks - 1
    _map(pathlib.Path(bad.nccl_library) if bad.nccl_library and last else _own_library())
    environment = _effective(os.environ)
    stream = _open(environment)
    lines = [] if bad.nccl_log in ("none", "empty") else fitted(launch, bad, rank, environment)
    log = Log(stream if bad.nccl_log != "none" else None, lines)
    log.write_until("Init COMPLETE", including=not bad.nccl_hang)
    return log


class Log:
    """The log of a rank; what is not written yet belongs to later."""

    def __init__(self, stream: IO[str] | None, lines: list[str]) -> None:
        self.stream = stream
        self.lines = lines
        _kept.append(stream)

    def write_until(self, text: str = "", including: bool = True) -> None:
        """Write on up to the first line with a text, or to the end."""
        place = next((at for at, line in enumerate(self.lines) if text and text in line), len(self.lines) - 1)
        ready, self.lines = self.lines[: place + including], self.lines[place + including :]
        if self.stream:
            self.stream.writelines(line + "\n" for line in ready)
            self.stream.flush()


def _own_library() -> pathlib.Path:
    return pathlib.Path(__file__).resolve().parents[1] / "nvidia/nccl/lib/libnccl.so.2"


def _map(path: pathlib.Path) -> None:
    if path.is_file():
        with path.open("rb") as stream:
            _kept.append(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


def _effective(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment over NCCL's settings file."""
    file = host.root() / "etc/nccl.conf"
    lines = file.read_text().splitlines() if file.is_file() else []
    return {**dict(line.split("=", 1) for line in lines if "=" in line), **environment}


def _open(environment: Mapping[str, str]) -> IO[str] | None:
    path = environment.get("NCCL_DEBUG_FILE")
    if environment.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE") or not path:
        return None
    names = {"%h": os.uname().nodename.split(".")[0], "%p": str(os.getpid()), "%%": "%"}
    try:
        return pathlib.Path(re.sub("%[hp%]", lambda match: names[match[0]], path)).open("w")
    except OSError:
        return None  # NCCL goes on without its file


def recording(environment: Mapping[str, str]) -> str:
    """The recording whose settings are most like these."""
    parts = ["p2p-disabled"] if environment.get("NCCL_P2P_DISABLE") == "1" else []
    parts += ["pcie-ll-ring"] if "NCCL_PROTO" in environment else []
    return "2.28.9/" + ("-".join(parts) or "default")


def fitted(launch: Launch, bad: Misbehaviour, rank: int, environment: Mapping[str, str]) -> list[str]:
    """The recorded log of a rank, with this process's numbers and values."""
    name = bad.nccl_log or recording(environment)
    file = host.root() / "opt/simulator/nccl" / f"{name}.rank{min(rank, 1)}.log"
    lines = []
    for line in file.read_text().splitlines():
        if bad.nccl_cut and bad.nccl_cut in line:
            break
        match = _SET.search(line)
        if match:
            value = _printed(match[1], match[3], environment)
            if value is None:
                continue
            line = line[: match.start()] + f"{match[1]} set by environment to {value}"
        lines.append(_renumbered(line, rank, launch.ranks))
    return lines


def _printed(name: str, dot: str, environment: Mapping[str, str]) -> str | None:
    """A value as NCCL prints it, None where it prints nothing."""
    value = environment.get(name)
    if value is None or (name == "NCCL_P2P_LEVEL" and value not in LEVELS):
        return None
    return f"{int(value, 0)}." if dot else value


def _renumbered(line: str, rank: int, ranks: int) -> str:
    """Process, host, ranks and GPU of a line; the recordings are of two ranks."""
    pid, name = os.getpid(), os.uname().nodename.split(".")[0]
    old = str(min(rank, 1))
    line = re.sub(r"host:\d00:(\d)(\d\d) \[\d\]", lambda m: f"{name}:{pid}:{pid + int(m[2])} [{rank}]", line)
    line = re.sub(
        rf"rank {old} nranks 2 cudaDev {old} nvmlDev {old} busId \w+",
        f"rank {rank} nranks {ranks} cudaDev {rank} nvmlDev {rank} busId {0x60 + 0x10 * rank:x}",
        line,
    )
    line = re.sub(rf"rank {old} nRanks 2 nNodes 1 localRanks 2 localRank {old}",
                  f"rank {rank} nRanks {ranks} nNodes 1 localRanks {ranks} localRank {rank}", line)  # fmt: skip
    following = (rank + 1) % ranks
    return re.sub(r" : \d\[\d\] -> \d\[\d\] via", f" : {rank}[{rank}] -> {following}[{following}] via", line)
