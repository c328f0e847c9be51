"""The folder of one run: what it made, for others to see while it lives and to clean up when it has died.

CACHE/runs/<label>-<random>.lock    held for as long as the process of the run lives; has its process id
CACHE/runs/<label>-<random>/
    network.json                    the subnet
    hosts/<name>/host.json          the address and the control groups of a host
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from tests.testbed import cgroups, network, process
from tests.testbed.locks import locked
from tests.testbed.trees import remove_tree

SOCKETS = Path("/run/servewright-testbed")
"""Sockets of shared SSH connections, a folder a run; not in the cache, because their paths must be short."""


@dataclass(frozen=True)
class HostRecord:
    """A host of a run, as its folder tells."""

    name: str
    ip: str
    cgroups: list[Path]
    root: Path


@dataclass(frozen=True)
class Run:
    """A run, alive or dead."""

    folder: Path

    @property
    def name(self) -> str:
        """What people call it by."""
        return self.folder.name

    @property
    def sockets(self) -> Path:
        """Folder for the sockets of shared SSH connections."""
        return SOCKETS / self.name

    @property
    def switch(self) -> str:
        """The name of its network; short, because an interface is called so too."""
        return f"swtb-{self.name.rpartition('-')[2]}"

    @property
    def lock(self) -> Path:
        """Held by the process of the run; beside the folder, because it is the last to go."""
        return self.folder.with_name(f"{self.name}.lock")

    @property
    def owner(self) -> int:
        """Process id of a run that is alive."""
        return int(self.lock.read_text())

    def hosts(self) -> list[HostRecord]:
        """Its hosts, by name."""
        records = []
        for folder in sorted(self.folder.glob("hosts/*/")):
            content = _read_json(folder / "host.json")
            groups = [Path(text) for text in content.get("cgroups", [])]
            records.append(HostRecord(folder.name, content.get("ip", "no address"), groups, folder / "root"))
        return records

    def record_network(self, subnet: IPv4Network) -> None:
        """Write down what to take away should this process die."""
        (self.folder / "network.json").write_text(json.dumps({"subnet": str(subnet)}))

    def remove(self) -> None:
        """Take away everything the run made; only for its own process, and for others once it is dead."""
        for host in self.hosts():
            container = process.container_of(host.root)
            if container is not None:
                process.kill_container(container)
            cgroups.remove(host.cgroups)
        wiring = _read_json(self.folder / "network.json")
        if wiring:
            network.remove(self.switch, IPv4Network(wiring["subnet"]))
        remove_tree(self.sockets)
        remove_tree(self.folder)
        self.lock.unlink(missing_ok=True)


def start(cache: Path, label: str) -> tuple[Run, int]:
    """Make the folder of a new run; also the file descriptor that must stay open for as long as it lives."""
    with locked(cache / "runs.lock"):  # nobody must find the new lock before it is held
        run = Run(cache / "runs" / f"{label}-{secrets.token_hex(3)}")
        run.folder.parent.mkdir(exist_ok=True)
        lock = os.open(run.lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(lock, str(os.getpid()).encode())
        run.folder.mkdir()
        run.sockets.mkdir(parents=True, mode=0o700)
    return run, lock


def living(cache: Path) -> list[Run]:
    """The runs whose process is alive."""
    with locked(cache / "runs.lock"):
        return [run for run in _all(cache) if not _is_dead(run)]


def sweep(cache: Path) -> None:
    """Remove what runs have left behind whose process is gone."""
    with locked(cache / "runs.lock"):
        for run in _all(cache):
            if _is_dead(run):
                run.remove()


def _all(cache: Path) -> list[Run]:
    return [Run(path.with_suffix("")) for path in sorted((cache / "runs").glob("*.lock"))]


def _is_dead(run: Run) -> bool:
    """Whether nobody holds the lock of a run that has not removed itself; call it with runs.lock held."""
    try:
        descriptor = os.open(run.lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _read_json(path: Path) -> dict[str, Any]:
    # not there yet, or half of it, from a process that was killed while it wrote
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return content
