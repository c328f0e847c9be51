"""The inventory of the demo: that of the repository, changed where a simulation needs it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.testbed import Host

ROOT = Path(__file__).parents[2]
DECLARED = "inventory/group_vars/llm.yml"

Changes = Mapping[str, Any]
"""Keys of a service and their new values; of a mapping, only those that change."""

SIMULATION: Changes = {"model": {"path": "/opt/simulator/model"}, "verify": {"stable": 1}}
"""What the simulated engine needs: its model, and a gate that does not watch for ten seconds."""


def prepare(folder: Path, host: Host) -> None:
    """Make the folder one in which servewright finds its inventory by itself."""
    shutil.copytree(ROOT / "inventory", folder / "inventory")
    shutil.copy(ROOT / "ansible.cfg", folder)
    hosts = {"llm": {"hosts": {host.name: host.ansible_vars()}}}
    (folder / "inventory/hosts.yml").write_text(yaml.safe_dump(hosts), encoding="utf-8")


def declare(folder: Path, *changes: Changes) -> None:
    """Write the reference declaration with the keys of its service changed."""
    declared = yaml.safe_load((ROOT / DECLARED).read_text(encoding="utf-8"))
    for change in changes:
        declared["servewright_services"] = [merged(service, change) for service in declared["servewright_services"]]
    (folder / DECLARED).write_text(yaml.safe_dump(declared, sort_keys=False), encoding="utf-8")


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The old mapping with the values of the new one, mapping by mapping."""
    return {
        **old,
        **{key: merged(old.get(key, {}), value) if isinstance(value, dict) else value for key, value in new.items()},
    }
