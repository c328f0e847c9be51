"""What a host declares about itself, for checks that need no connection to it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from servewright.spec.base import AbsolutePath, Strict, Text


class DriftTimer(Strict):
    """A systemd timer on the host that looks for drift, says in the journal what it finds, and changes nothing."""

    schedule: Annotated[str, Field(pattern=r"^[A-Za-z0-9*:/.,~ -]+$")] = Field(
        description="When, as systemd's OnCalendar= takes it, for instance 'hourly'."
    )


class Host(Strict):
    """The GPUs of a host as its owner declares them; preflight compares them with what is there."""

    gpus: Annotated[int, Field(ge=0, le=256)] | None = Field(None, description="Number of GPUs.")
    gpu_model: Text | None = Field(None, description="Name of the GPUs as nvidia-smi prints it.")
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")] | None = Field(
        None, description="CUDA compute capability, for instance '12.0'."
    )
    interconnect: Literal["pcie", "nvlink"] | None = Field(None, description="How the GPUs are linked.")
    metrics_folder: AbsolutePath | None = Field(
        None,
        description="Folder that node_exporter's textfile collector reads, for metrics of the drift timer and of the "
        "watch; without it they write none.",
    )
    drift_timer: DriftTimer | None = Field(None, description="A timer that looks for drift; without it there is none.")
