"""What a tuning found, as a profile to declare in the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .cases import PLUGIN, TABLE

_REASONS = {
    PLUGIN: "NCCL takes a choice by message size from a plugin only.",
    TABLE: "The choice by message size, measured on this host.",
    "NCCL_MIN_CTAS": "A tuner can use no more channels than the communicator made at its start.",
    "NCCL_PROTO": "Keeps every protocol on that the table may name.",
}
_GIVEN = "Part of the environment in which the rest was measured."


def tuned(
    name: str,
    topology: Literal["pcie", "nvlink"],
    environment: Mapping[str, str],
    note: str,
    plugin: str | None = None,
    table: str | None = None,
) -> dict[str, Any]:
    """A user-defined profile: with plugin and table (paths on the host) by size, without them one for all sizes.

    environment: exactly that of the winning case, or of the sweep that the table came from; the times hold nowhere
    else. note: what was measured, when, with what.
    """
    settings = dict(environment)
    if plugin and table:
        settings |= {PLUGIN: plugin, TABLE: table}
    return {
        "name": name,
        "version": 1,
        "topology": topology,
        "title": "Measured on this host" + (", by message size" if plugin and table else ""),
        "settings": {
            variable: {"value": value, "reason": _REASONS.get(variable, _GIVEN)}
            for variable, value in sorted(settings.items())
        },
        "measured": {"status": "yes", "note": note},
    }
