"""servewright nccl tune"""

from __future__ import annotations

from typing import Annotated

import typer

from servewright.cli.nccl import measured
from servewright.cli.options import Common, LockWait, Reason

Service = Annotated[str, typer.Argument(metavar="SERVICE", help="Whose engine, model and GPUs to use.")]
Ablate = Annotated[
    str, typer.Option(metavar="PROFILE", help="Before, measure each variable of this profile.", show_default=False)
]
Channels = Annotated[str, typer.Option(metavar="N,N,...", help="Numbers of channels to try.", show_default=False)]


def tune(
    common: Common,
    service: Service,
    seconds: measured.Seconds = 480,
    ablate: Ablate = "",
    timeout: measured.Timeout = 60,
    stop: measured.Stop = False,
    out: measured.Out = None,
    decode: measured.Decode = "",
    prefill: measured.Prefill = "",
    channels: Channels = "",
    weight_decode: measured.WeightDecode = 1,
    weight_prefill: measured.WeightPrefill = 1,
    rehearsal: measured.Rehearsal = False,
    reason: Reason = "",
    lock_wait: LockWait = 0,
) -> int:
    """Find the best NCCL setting for each message size."""
    return measured.run(
        "tune",
        common,
        [service],
        out,
        seconds=seconds,
        timeout=timeout,
        ablate=ablate,
        stop=stop,
        decode=measured.numbers(decode, "--decode"),
        prefill=measured.numbers(prefill, "--prefill"),
        channels=measured.numbers(channels, "--channels"),
        weight_decode=weight_decode,
        weight_prefill=weight_prefill,
        rehearsal=rehearsal,
        reason=reason,
        lock_wait=lock_wait,
    )
