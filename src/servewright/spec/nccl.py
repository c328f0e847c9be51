"""The NCCL environment that a service gets, where each of its variables is declared, and what is known about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from servewright.engines import ENGINES
from servewright.nccl.facts import Facts
from servewright.nccl.profiles import Profile, Resolved, resolve
from servewright.spec.host import Host
from servewright.spec.problems import Path
from servewright.spec.service import Service

PROFILES_VARIABLE = "servewright_nccl_profiles"


class Setting(NamedTuple):
    """A variable of a service and the key of the inventory that it comes from.

    For a variable of a built-in profile that key is the one that names the profile.
    """

    row: Resolved
    path: Path


def facts(service: Service, host: Host | None) -> Facts:
    """What the declaration says about the host and the engine; it cannot say which NCCL the engine brings."""
    host = host or Host.model_validate({})
    flags = [word for words in ENGINES[service.engine].flags(service) for word in words]
    return Facts.model_validate(
        {
            "interconnect": host.interconnect,
            "gpu_count": host.gpus,
            "compute_capability": host.compute_capability,
            "tensor_parallel": service.parallelism.tensor,
            "nodes": 1,
            "engine": service.engine,
            "engine_version": service.version,
            "flags": flags,
        }
    )


def settings(service: Service, path: Path, host: Host | None, own: Sequence[Profile]) -> list[Setting]:
    """The resolved NCCL environment of a service and what else it declares that reaches NCCL, by name.

    `path` is the service's place in the inventory. Raises ValueError for a profile that cannot be had.
    """
    declared = service.nccl.environment
    rows = resolve(service.nccl.profile, own, declared, facts(service, host))
    places = {
        variable: (PROFILES_VARIABLE, index, "settings", variable)
        for index, profile in enumerate(own)
        if profile.name == service.nccl.profile
        for variable in profile.settings
    }
    named: Path = (*path, "nccl", "profile")
    found = {
        row.variable: Setting(
            row,
            (*path, "nccl", "environment", row.variable)
            if declared.get(row.variable) is not None
            else places.get(row.variable, named),
        )
        for row in rows
    }
    for name, value in service.environment.items():
        row = Resolved(name, value, "inventory", "set in the inventory")
        found[name] = Setting(row, (*path, "environment", name))
    return [found[name] for name in sorted(found)]
