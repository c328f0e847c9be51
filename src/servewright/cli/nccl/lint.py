"""servewright nccl lint"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from servewright.cli.nccl.ending import document, ending, place
from servewright.cli.options import Inventory, Json, Services
from servewright.report.exit_code import DONE, ERROR, REFUSED

if TYPE_CHECKING:
    from servewright.cli.nccl.machine import Source
    from servewright.nccl.finding import Finding


class Interconnect(StrEnum):
    """How GPUs can be linked."""

    pcie = "pcie"
    nvlink = "nvlink"


class Engine(StrEnum):
    """Engines that the linter knows."""

    sglang = "sglang"
    vllm = "vllm"


def _option(flag: str, text: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(flag, help=text, metavar=metavar, show_default=False, **more)


@ending
def lint(
    context: typer.Context,
    services: Services = None,
    inventory: Inventory = None,
    unit: Annotated[
        str | None, _option("--unit", "A unit of this machine instead, by name or by the path of its file.", "UNIT")
    ] = None,
    environment_file: Annotated[
        str | None, _option("--environment-file", "A file as for EnvironmentFile= instead.", "FILE")
    ] = None,
    conf: Annotated[str | None, _option("--conf", "A file like /etc/nccl.conf instead.", "FILE")] = None,
    pid: Annotated[int | None, _option("--pid", "A process of this machine instead.", "PID", min=1)] = None,
    nccl_version: Annotated[str | None, _option("--nccl-version", "Version of NCCL.", "VERSION")] = None,
    interconnect: Annotated[Interconnect | None, _option("--interconnect", "How the GPUs are linked.")] = None,
    compute_capability: Annotated[
        str | None, _option("--compute-capability", "Of the GPUs, for instance 12.0.", "X.Y")
    ] = None,
    gpus: Annotated[int | None, _option("--gpus", "Number of GPUs.", "N", min=0)] = None,
    tensor_parallel: Annotated[int | None, _option("--tensor-parallel", "Tensor parallel size.", "N", min=1)] = None,
    engine: Annotated[Engine | None, _option("--engine", "The engine.")] = None,
    json: Json = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0.")] = False,
) -> int:
    """Find NCCL settings that do not do what they say.

    Judges the services of an inventory, or one other source. What the source does not tell (NCCL's version, how the
    GPUs are linked) can be given, and wins; a rule that needs a fact nobody gave stays silent. Exit code 3: an error
    was found. 1: something could not be read.
    """
    sources = [source for source in (unit, environment_file, conf, pid) if source is not None]
    if len(sources) > 1:
        raise ValueError("give one of --unit, --environment-file, --conf and --pid")
    if sources and (services or inventory):
        raise ValueError("--unit, --environment-file, --conf and --pid stand instead of an inventory and its services")
    if json and sarif:
        raise ValueError("give one of --json and --sarif")
    given = _facts(nccl_version, interconnect, compute_capability, gpus, tensor_parallel, engine)

    unread: list[str] = []
    if sources:
        from servewright.cli.nccl import machine

        nccl = given.get("nccl_version")
        if unit is not None:
            source = machine.unit(unit)
        elif environment_file is not None:
            source = machine.environment_file(environment_file)
        elif conf is not None:
            source = machine.conf(conf, nccl)
        else:
            source = machine.process(int(pid or 0), nccl)
        rows = [("", finding) for finding in _of_source(source, given)]
        unread = source.unread
    else:
        rows = _of_services(inventory, services or [], given)
    for path in unread:
        print(f"warning: cannot read {path}; what it sets is not judged", file=sys.stderr)
    _show(rows, json, sarif)
    if any(finding.severity == "error" for _, finding in rows):
        return REFUSED
    return ERROR if unread else DONE


def _facts(
    nccl_version: str | None,
    interconnect: Interconnect | None,
    compute_capability: str | None,
    gpus: int | None,
    tensor_parallel: int | None,
    engine: Engine | None,
) -> dict[str, Any]:
    """The facts that were given, as fields of Facts."""
    from servewright.nccl import version

    if compute_capability is not None and not re.fullmatch(r"\d+\.\d+", compute_capability):
        raise ValueError(f"{compute_capability!r} is not a compute capability; write it as 12.0")
    facts = {
        "nccl_version": version.parse(nccl_version) if nccl_version is not None else None,
        "interconnect": interconnect and interconnect.value,
        "compute_capability": compute_capability,
        "gpu_count": gpus,
        "tensor_parallel": tensor_parallel,
        "engine": engine and engine.value,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _of_source(source: Source, given: Mapping[str, Any]) -> list[Finding]:
    from servewright.nccl.facts import Facts
    from servewright.nccl.linter import lint
    from servewright.nccl.sources import Location

    facts = Facts.model_validate({**source.facts, **given})
    origins = {entry.name: entry.origin for entry in source.entries}
    found = lint({entry.name: entry.value for entry in source.entries}, facts, origins)
    return [replace(finding, location=finding.location or Location(source.name)) for finding in found]


def _of_services(inventory: list[str] | None, only: list[str], given: Mapping[str, Any]) -> list[tuple[str, Finding]]:
    """The findings on each service, by its name."""
    from servewright.cli.nccl.declared import services
    from servewright.nccl.facts import Facts
    from servewright.nccl.linter import lint

    rows = []
    for service, known, settings, origins, own in services(inventory, only):
        facts = Facts.model_validate({**known.model_dump(), **given})
        found = lint({row.variable: row.value for row in settings}, facts, origins)
        rows += [(service.name, replace(finding, location=finding.location or own)) for finding in found]
    return rows


def _show(rows: list[tuple[str, Finding]], json: bool, sarif: bool) -> None:
    from servewright.nccl.output import as_json, as_sarif

    findings = [finding for _, finding in rows]
    if sarif:
        document(as_sarif(findings))
        return
    result = as_json(findings)
    if json:
        for row, (service, _) in zip(result["findings"], rows, strict=True):
            row["service"] = service or None
        document(result)
        return
    from servewright.report.style import clean, paint, wants_colour

    colour = wants_colour(sys.stdout)
    styles = {"error": "bad", "warning": "change", "info": "faint"}
    # A profile that two services share gives each the same lines.
    for finding in dict.fromkeys(findings):
        at = f"{place(str(finding.location))}: " if finding.location else ""
        what = f" {finding.variable}" if finding.variable else ""
        severity = paint(finding.severity, styles[finding.severity], colour)
        print(f"{clean(at)}{severity} {finding.id}{clean(what)}: {clean(finding.message)} -> {finding.suggestion}")
    counts = as_json(dict.fromkeys(findings))["counts"]
    errors, warnings = (f"{counts[key]} {key}{'s' * (counts[key] != 1)}" for key in ("error", "warning"))
    print(f"{errors}, {warnings}, {counts['info']} info" if findings else "clean")
