"""What a run gave, per host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class HostResult:
    """One host. `services` and `problems` are the dictionaries that the collection's action plugin returns."""

    services: list[dict[str, Any]] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)
    changed: bool = False
    unreachable: bool = False
    error: str = ""
    note: str = ""
    """Why there is nothing to do, where that may be a mistake."""


@dataclass
class RunResult:
    """One run of a command."""

    command: str
    hosts: dict[str, HostResult] = field(default_factory=dict)
    problems: list[dict[str, Any]] = field(default_factory=list)
    """Problems of the inventory that were found without Ansible, so for no host in particular."""
    services: list[str] = field(default_factory=list)
    """Names of the services that were found valid without Ansible."""
    error: str = ""
    """Why the run as a whole did not work."""
    interrupted: int = 0
    """Number of the signal that stopped the run, or 0."""
    unfinished: list[dict[str, str]] = field(default_factory=list)
    """Host, service ("" if not known) and step of what had no verdict when the run was stopped."""

    @property
    def nothing_declared(self) -> bool:
        """Whether there was nothing to do on any host, and that may be a mistake."""
        return bool(self.hosts) and all(host.note for host in self.hosts.values())
