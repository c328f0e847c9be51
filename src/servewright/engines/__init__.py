"""What differs between engines: one file per engine, data and pure functions."""

from __future__ import annotations

from servewright.engines.base import Engine
from servewright.engines.sglang import SGLANG
from servewright.engines.vllm import VLLM

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (SGLANG, VLLM)}

__all__ = ["ENGINES", "Engine"]
