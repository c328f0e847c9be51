"""The attention backend: what is known against it for this model, GPU and version."""

from __future__ import annotations

import json
import os

from .. import attention
from .check import fatal, warning


def backend(subject):
    """The declared attention backend, or the engine's own choice, runs this model on these GPUs."""
    release = subject.release
    config = _config(release["model"]["path"])
    if config is None or not release["gpus"]:
        return []  # the model's check tells; without a GPU there is nothing known
    found = []
    for capability in sorted({gpu["compute_capability"] for gpu in subject.claimed.values()}):
        facts = {
            "engine": release["engine"],
            "version": release["version"],
            "backend": flag(release["argv"], "--attention-backend").lower(),
            "kind": attention.kind_of(config),
            "major": int(capability.split(".")[0]) if capability[:1].isdigit() else None,
            "cache": flag(release["argv"], "--kv-cache-dtype"),
            "experts": _experts(release["argv"]),
        }
        for severity, what, use in attention.findings(facts):
            found.append((fatal if severity == attention.REFUSE else warning)(what, use, **facts))
    return found + _draft(release)


def flag(argv, name):
    """Value of a flag in an argument list, or ""."""
    values = [after for word, after in zip(argv, argv[1:]) if word == name]
    return values[-1] if values else ""


def _experts(argv):
    size = flag(argv, "--ep-size")
    return int(size) if size.isdigit() else 1 + ("--enable-expert-parallel" in argv)


def _draft(release):
    """A draft model made for a shorter context than is served slows long prompts down (sgl-project/sglang#6783)."""
    folder = flag(release["argv"], "--speculative-draft-model-path")
    text = flag(release["argv"], "--speculative-config")
    if text:
        try:
            folder = json.loads(text).get("model") or folder
        except (ValueError, AttributeError):
            return []  # the engine's parser tells
    longest = (_config(folder) or {}).get("max_position_embeddings") if folder else None
    served = release["model"]["context_length"]
    if longest and served and longest < served:
        return [
            warning(
                f"the draft model in {folder} was made for {longest} tokens, and {served} are served",
                "measure with prompts of the real length: speculation may slow them down",
            )
        ]
    return []


def _config(folder):
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
            config = json.load(stream)
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None
