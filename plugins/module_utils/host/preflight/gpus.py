"""The claimed GPUs."""

from __future__ import annotations

from .. import gpus, proc


def claim(release, freed):
    """The claimed GPUs are there, and held by nobody but services that will be stopped."""
    if not release["gpus"]:
        return []
    all_gpus = gpus.query()
    missing = sorted(set(release["gpus"]) - set(all_gpus))
    if missing:
        return [
            (
                "GPU {} is not there; nvidia-smi lists {}".format(
                    ", ".join(map(str, missing)), ", ".join(map(str, sorted(all_gpus))) or "none"
                ),
                "claim GPUs that are there; a GPU that has gone needs a reboot",
            )
        ]
    found = []
    for pid in gpus.holders(release["gpus"]):
        if proc.unit(pid) not in freed:
            found.append((f"a claimed GPU is held by {proc.describe(pid)}", "end that process, or claim other GPUs"))
    return found
