"""What `nccl bench` and `nccl tune` do with what a host measured: tables, files, a plot and a profile."""

from __future__ import annotations

import base64
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from servewright.cli import playbook
from servewright.cli.options import Common

Stop = Annotated[
    bool, typer.Option("--stop", help="Stop the services that hold the GPUs, and start them again afterwards.")
]
Seconds = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="How long to measure.")]
Timeout = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="How long one start may take.")]
Out = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Keep records, table, profile and plot here.", show_default=False)
]
Decode = Annotated[str, typer.Option(metavar="N,N,...", help="Batch sizes of decode.", show_default=False)]
Prefill = Annotated[str, typer.Option(metavar="N,N,...", help="Chunk sizes of prefill.", show_default=False)]
WeightDecode = Annotated[float, typer.Option(min=0, help="How much decode counts where one environment is chosen.")]
WeightPrefill = Annotated[float, typer.Option(min=0, help="The same for prefill.")]
Rehearsal = Annotated[
    bool, typer.Option("--rehearsal", help="Try the way on CPUs, with gloo; the times say nothing about GPUs.")
]


def run(what: str, common: Common, services: list[str], out: Path | None, **options: Any) -> int:
    """Measure on the hosts, keep what was measured, and report."""
    chosen = {name: value for name, value in options.items() if value not in (None, "", [])}
    reason, lock_wait = chosen.pop("reason", None), chosen.pop("lock_wait", None)
    result = playbook.result(
        f"nccl_{what}",
        common,
        services,
        servewright_measure=chosen,
        servewright_reason=reason,
        servewright_lock_wait=lock_wait,
    )
    shown: list[str] = []
    for host, found in result.hosts.items():
        for service in found.services:
            if "measured" in service:
                records = service["measured"].pop("records")
                texts = {phase: gzip.decompress(base64.b64decode(text)).decode() for phase, text in records.items()}
                folder = out / host / service["service"] if out else None
                try:
                    shown += _tables(what, chosen.get("ablate"), service, texts)
                    shown += _kept(what, service, texts, folder) if folder else []
                except (OSError, ValueError) as error:
                    shown.append(f"not written: {error}")
    if not common.json:
        for text in shown:
            sys.stdout.write(text + "\n\n")
    return playbook.report(result, common)


def numbers(text: str, option: str) -> list[int]:
    """`1,8,64` as numbers. Raises typer.BadParameter."""
    try:
        found = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        found = [0]
    if any(number < 1 for number in found):
        raise typer.BadParameter(f"{option} is a list of whole numbers from 1, such as 1,8,64; found {text!r}")
    return found


def _last(records: dict[str, str]) -> str | None:
    """The phase whose record says what came of it."""
    return next((phase for phase in ("verify", "finals", "bench") if phase in records), None)


def _tables(what: str, ablated: str | None, service: dict[str, Any], records: dict[str, str]) -> Iterator[str]:
    from servewright.nccl.measure import compare, record, table

    if ablated and "ablation" in records:
        yield f"{service['service']}: {table.effects(record.read(records['ablation']), ablated)}"
    name = _last(records)
    if name is None:
        return
    read = record.read(records[name])
    summaries = compare.summarise(read.timings)
    outcome = service["measured"]["outcome"]
    held = " ".join(f"{variable}={value}" for variable, value in outcome.get("held", {}).items())
    yield f"{service['service']}: {read.heading()}" + (f"\nin every case, as declared: {held}" if held else "")
    for collective in dict.fromkeys(collective for _, collective, _ in summaries):
        yield table.times(summaries, collective)
        if name == "verify":
            yield table.pairs(read.timings, collective, "tuned")
    scores = [f"  {row['slowdown']:.2f}  {row['case']}" for row in outcome.get("scores", [])]
    if scores:
        yield "\n".join(["slower than the best at each size, by weight of decode and prefill (1 is best):", *scores])
    if what == "tune" and outcome.get("how"):
        yield _how(service["measured"])


def _how(measured: dict[str, Any]) -> str:
    if measured["table"]:
        return f"tuned by message size: {measured['table']}, read by {measured['plugin']}"
    return f"no tuner plugin, so one environment for all sizes: {measured['outcome']['how']}"


def _kept(what: str, service: dict[str, Any], records: dict[str, str], folder: Path) -> Iterator[str]:
    """Write everything; gives a line about each file."""
    from servewright.nccl.measure import compare, plot, record
    from servewright.report.plot import PlotError

    measured, name = service["measured"], _last(records)
    texts = {f"{phase}.json": text for phase, text in records.items()}
    texts["outcome.json"] = json.dumps(measured, indent=1, sort_keys=True) + "\n"
    if what == "tune" and measured["outcome"].get("how"):
        if measured["outcome"].get("table"):
            texts["tuned.csv"] = measured["outcome"]["table"]
        texts["profile.yml"] = _profile(service, record.read(records[str(name)]).heading())
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    written = [*texts]
    if name:
        read = record.read(records[name])
        summaries = compare.summarise(read.timings)
        try:
            title = f"all-reduce of {service['service']}, by environment"
            plot.draw(summaries, "all_reduce", compare.cases(summaries), folder / "plot.svg", title, read.heading())
            written.append("plot.svg")
        except PlotError as error:
            yield f"no plot: {error}"
    yield f"written to {folder}: {', '.join(written)}"


def _profile(service: dict[str, Any], heading: str) -> str:
    """An inventory snippet."""
    import yaml

    from servewright.nccl.measure.profile import tuned

    measured = service["measured"]
    name = f"tuned-{measured['topology']}"
    made = tuned(
        name,
        "nvlink" if name.endswith("nvlink") else "pcie",
        measured["outcome"]["environment"],
        heading,
        measured["plugin"],
        measured["table"],
    )
    return yaml.safe_dump({"servewright_nccl_profiles": [made]}, sort_keys=False, width=120)
