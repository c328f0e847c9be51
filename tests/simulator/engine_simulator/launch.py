"""The parsed command line of either engine, reduced to what the simulator acts on."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import Any


@dataclasses.dataclass
class Launch:
    """What is to be served and how. `context`: tokens; `memory_fraction`: of a GPU's memory."""

    engine: str
    version: str
    model_path: str
    config: dict[str, Any]
    names: list[str]
    host: str
    port: int
    tensor_parallel: int
    ranks: int
    context: int
    memory_fraction: float
    attention_backend: str
    dummy_weights: bool
    on_gpu: bool
    max_running: int
    speculation: str | None
    api_keys: list[str]
    dev_mode: bool
    tool_parser: str | None
    reasoning_parser: str | None
    drain_seconds: float | None
    args: argparse.Namespace

    @property
    def cuda_graphs(self) -> bool:
        eager = getattr(self.args, "enforce_eager", False) or getattr(self.args, "disable_cuda_graph", False)
        return self.on_gpu and not eager


def engine_version(module_file: str) -> str:
    """The version install() wrote next to the package's __init__.py."""
    return (pathlib.Path(module_file).parent / "VERSION").read_text().strip()
