"""What is known about the host, the engine and the library when a setting is judged."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator

from . import data, version


class Facts(data.Row):
    """Every field is optional; None means unknown, and a rule that needs an unknown fact stays silent."""

    nccl_version: version.Version | None = None
    interconnect: Literal["pcie", "nvlink"] | None = None
    gpu_count: int | None = None
    compute_capability: tuple[int, int] | None = None
    p2p: bool | None = None
    """True only where a timed all-reduce over P2P gave right answers; the driver's report proves nothing."""
    tensor_parallel: int | None = None
    nodes: int | None = None
    engine: Literal["sglang", "vllm"] | None = None
    engine_version: str | None = None
    flags: tuple[str, ...] | None = None
    """The engine's argument list."""

    @field_validator("compute_capability", mode="before")
    @classmethod
    def _capability(cls, value: Any) -> Any:
        if isinstance(value, (str, float, int)):
            major, _, minor = str(value).partition(".")
            return major, minor or "0"
        return value
