"""Makes a profile of the NCCL settings that an existing unit carries."""

from __future__ import annotations

from collections.abc import Mapping

from . import systemd
from .profiles import Measured, Profile, Setting


def import_profile(
    unit_text: str,
    name: str,
    file: str,
    environment_files: Mapping[str, str] | None = None,
) -> Profile:
    """The NCCL_ variables of a unit as a profile under a new name, each with the line it comes from.

    file is the unit's path, environment_files the contents of its EnvironmentFile= paths. Variables of one
    engine (VLLM_..., SGLANG_...) are left out, because the profile is meant for any engine.
    Raises ValueError when the unit sets no NCCL variable, or (from pydantic) when the name cannot be one.
    """
    found = systemd.unit(unit_text, file, environment_files)
    settings = {
        entry.name: Setting(value=entry.value, reason=f"taken from {entry.origin}")
        for entry in found.entries
        if entry.name.startswith("NCCL_")
    }
    if not settings:
        unread = f"; not read: {', '.join(found.files)}" if found.files else ""
        raise ValueError(f"{file} sets no NCCL variable{unread}")
    note = f"Taken from {file}; why each setting is there is not known."
    return Profile(name=name, title=f"Settings of {file}", settings=settings, measured=Measured(note=note))
