"""servewright nccl bench"""

from __future__ import annotations

from typing import Annotated

import typer

from servewright.cli.nccl import measured
from servewright.cli.options import Common, LockWait, Reason

Services = Annotated[list[str], typer.Argument(metavar="SERVICE...", help="Whose engine, model and GPUs to use.")]
Profiles = Annotated[
    str, typer.Option(metavar="A,B,...", help="Profiles to compare; without it all.", show_default=False)
]


def bench(
    common: Common,
    services: Services,
    profiles: Profiles = "",
    seconds: measured.Seconds = 120,
    timeout: measured.Timeout = 60,
    stop: measured.Stop = False,
    out: measured.Out = None,
    decode: measured.Decode = "",
    prefill: measured.Prefill = "",
    weight_decode: measured.WeightDecode = 1,
    weight_prefill: measured.WeightPrefill = 1,
    rehearsal: measured.Rehearsal = False,
    reason: Reason = "",
    lock_wait: LockWait = 0,
) -> int:
    """Compare NCCL environments at the model's message sizes."""
    return measured.run(
        "bench",
        common,
        services,
        out,
        profiles=[name.strip() for name in profiles.split(",") if name.strip()],
        seconds=seconds,
        timeout=timeout,
        stop=stop,
        decode=measured.numbers(decode, "--decode"),
        prefill=measured.numbers(prefill, "--prefill"),
        weight_decode=weight_decode,
        weight_prefill=weight_prefill,
        rehearsal=rehearsal,
        reason=reason,
        lock_wait=lock_wait,
    )
