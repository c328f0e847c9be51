"""What a host declares about itself, for checks that need no connection to it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from servewright.spec.base import Strict, Text


class Host(Strict):
    """The GPUs of a host as its owner declares them; preflight compares them with what is there."""

    gpus: Annotated[int, Field(ge=0)] | None = Field(None, description="Number of GPUs.")
    gpu_model: Text | None = Field(None, description="Name of the GPUs as nvidia-smi prints it.")
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = Field(
        None, description="CUDA compute capability, for instance '12.0'."
    )
    interconnect: Literal["pcie", "nvlink"] | None = Field(None, description="How the GPUs are linked.")
