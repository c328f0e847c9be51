"""Makes a profile of the NCCL settings that an existing unit carries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .profiles import Measured, Profile, Setting
from .sources import Entry


def profile_of(entries: Iterable[Entry], name: str, file: str, unread: Sequence[str] = ()) -> Profile:
    """The NCCL_ variables among entries as a profile under a new name, each with the line it comes from.

    file is the unit's path, unread are files that it names and that could not be read. Variables of one engine
    (VLLM_..., SGLANG_...) are left out, because the profile is meant for any engine.
    Raises ValueError when there is no NCCL variable, or (from pydantic) when the name is not like NAME.
    """
    settings = {
        entry.name: Setting(value=entry.value, reason=f"taken from {entry.origin}")
        for entry in entries
        if entry.name.startswith("NCCL_")
    }
    if not settings:
        missing = f"; not read: {', '.join(unread)}" if unread else ""
        script = "if a script sets them, import a copy of the running engine's /proc/PID/environ"
        raise ValueError(f"{file} sets no NCCL variable{missing}; {script}")
    note = f"Taken from {file}; why each setting is there is not known."
    return Profile(name=name, title=f"Settings of {file}", settings=settings, measured=Measured(note=note))
