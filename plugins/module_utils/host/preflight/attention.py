"""The attention backend: what is known against it for this model, GPU and version."""

from __future__ import annotations

from .. import arguments, attention
from .check import fatal, warning
from .model import declared_config


def backend(subject):
    """The declared attention backend, or the engine's own choice, runs this model on these GPUs."""
    release = subject.release
    config = declared_config(release)
    if config is None or not release["gpus"]:
        return []  # the model's check tells; without a GPU there is nothing known
    found = []
    for capability in sorted({gpu["compute_capability"] for gpu in subject.claimed.values()}):
        facts = {
            "engine": release["engine"],
            "version": release["version"],
            "backend": (arguments.value(release, "--attention-backend") or "").lower(),
            "kind": attention.kind_of(config),
            "major": int(capability.split(".")[0]) if capability[:1].isdigit() else None,
            "cache": arguments.value(release, "--kv-cache-dtype") or "",
            "experts": _experts(release),
        }
        for severity, what, use in attention.findings(facts):
            found.append((fatal if severity == attention.REFUSE else warning)(what, use, **facts))
    return found


def _experts(release):
    return int(arguments.number(release, "--ep-size") or 1 + arguments.has(release, "--enable-expert-parallel"))
