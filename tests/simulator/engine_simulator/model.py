"""What the engines read of a model folder before they load anything."""

from __future__ import annotations

import json
import pathlib
from typing import Any


class ModelError(Exception):
    """The folder cannot be served; the text is the engine's last line."""


def read_config(path: str) -> dict[str, Any]:
    """config.json of a local folder; a multimodal wrapper's text_config is flattened into it."""
    folder = pathlib.Path(path)
    if not folder.is_dir():
        raise ModelError(
            f"OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'. "
            "Use `repo_type` argument if needed."
        )
    file = folder / "config.json"
    if not file.is_file():
        raise ModelError(f"OSError: {path} does not appear to have a file named config.json.")
    try:
        config = json.loads(file.read_text())
    except ValueError as error:
        raise ModelError(f"OSError: It looks like the config file at '{file}' is not a valid JSON file.") from error
    return {**config, **config.get("text_config", {})}


def max_length(config: dict[str, Any]) -> int:
    """The longest context the model was made for."""
    return int(config.get("max_position_embeddings", 2048))


def is_mla(config: dict[str, Any]) -> bool:
    """Multi-head latent attention: DeepSeek V2/V3 and the models shaped like them."""
    return bool(config.get("kv_lora_rank"))


def mla_fits(config: dict[str, Any]) -> bool:
    """Dimensions vLLM's MLA kernels have; with others it comes up and dies of its first request (0.32.0, CPU)."""
    return config.get("kv_lora_rank") == 512 and config.get("qk_rope_head_dim") == 64


def attention_heads(config: dict[str, Any]) -> int:
    return int(config.get("num_attention_heads", 1))


def shards(path: str) -> list[pathlib.Path]:
    """The weight files; one missing that the index names is the caller's error to report."""
    folder = pathlib.Path(path)
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        return [folder / name for name in names]
    return sorted(folder.glob("*.safetensors"))
