"""The claimed GPUs."""

from __future__ import annotations

from .. import gpus, proc
from .check import fatal


def claim(subject):
    """The claimed GPUs are there, and held by nobody but what will be ended."""
    claimed = subject.release["gpus"]
    if not claimed:
        return []
    missing = sorted(set(claimed) - set(subject.gpus))
    if missing:
        return [
            fatal(
                "GPU {} is not there; nvidia-smi lists {}".format(
                    ", ".join(map(str, missing)), ", ".join(map(str, sorted(subject.gpus))) or "none"
                ),
                "claim GPUs that are there; a GPU that has gone needs a reboot",
            )
        ]
    return [
        fatal(f"a claimed GPU is held by {proc.describe(pid)}", "end that process, or claim other GPUs")
        for pid in gpus.holders(claimed)
        if not subject.ends(pid)
    ]
