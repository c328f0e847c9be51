"""The document of a plan: its schema, and what of it a later deploy holds the hosts to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, JsonValue, ValidationError

from servewright.spec.problems import InvalidError, Problem

Planned = dict[str, dict[str, dict[str, str]]]
"""By host and service, the digest of what was declared and the fingerprint of the host."""


class Source(BaseModel):
    """Where a new value comes from."""

    origin: str = Field(description="In words, such as the name of an NCCL profile; empty for a line of the inventory.")
    file: str = Field(description="File of the inventory; empty where it is none.")
    line: int = Field(description="Line in that file, from 1; 0 where there is none.")


class Change(BaseModel):
    """One field that differs. Values of secrets are never in here."""

    field: str = Field(
        description="What differs. Beginning with 'running', the process differs from the release it was started "
        "from; beginning with 'unit file', the file on the host does."
    )
    old: JsonValue = Field(description="Value now; null where there is none.")
    new: JsonValue = Field(description="Declared value; null where it goes away.")
    consequence: Literal["none", "reload", "restart", "stop"] = Field(
        description="What taking it up does to the process: nothing, a daemon-reload, a restart, or the stop of "
        "another service that holds the same GPUs."
    )
    source: Source | None = Field(None, description="Where the new value comes from, as far as that is known.")


class Check(BaseModel):
    """A check of preflight."""

    id: str
    severity: Literal["ok", "warning", "fatal"]
    passed: bool
    message: str
    evidence: JsonValue = None
    repair: str = ""


class Downtime(BaseModel):
    """How long a restart is expected to take, from stop to serving."""

    seconds: float = Field(description="Median of the last restarts on this host, at most five.")
    of: int = Field(description="Number of restarts that were measured.")
    same_model: bool = Field(description="False where this model never loaded here and others were measured.")


class PlannedService(BaseModel):
    """One service of one host."""

    service: str
    verdict: Literal["changes", "unchanged", "refused", "error", "busy"]
    message: str
    release: int | None = Field(description="The committed release.")
    previous: int | None
    changes: list[Change]
    checks: list[Check] = Field(default_factory=list, description="What preflight says, where there are changes.")
    downtime: Downtime | None = Field(None, description="Null where no restart is planned, or none was measured yet.")
    declared: str = Field("", description="Digest of what is declared.")
    fingerprint: str = Field("", description="Digest of the state of the service on the host, keyed by the host.")


class PlannedHost(BaseModel):
    """One host."""

    services: list[PlannedService]
    problems: list[dict[str, JsonValue]] = Field(description="What is not valid in the declaration.")
    changed: bool
    unreachable: bool
    error: str


class Plan(BaseModel):
    """What `servewright plan --json` prints and `--out` saves."""

    command: Literal["plan"]
    exit_code: int
    hosts: dict[str, PlannedHost]
    problems: list[dict[str, JsonValue]] = Field(default_factory=list)
    error: str = Field("", description="Why the run as a whole did not work.")


def schema() -> str:
    """The JSON Schema of the document, as the text of a file."""
    made = Plan.model_json_schema(mode="serialization")
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **made}, indent=2) + "\n"


def planned(path: Path) -> Planned:
    """What a saved plan holds the hosts to.

    Raises InvalidError for a file that is no plan, and for a plan that did not get to know everything.
    """
    try:
        plan = Plan.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidError([Problem((), f"cannot be read: {error.strerror}", file=str(path))]) from None
    except (ValidationError, UnicodeDecodeError):
        raise InvalidError([Problem((), "is no plan: write one with plan --out", file=str(path))]) from None
    problems = [Problem(where, f"{why}; plan again", file=str(path)) for where, why in _gaps(plan)]
    if problems:
        raise InvalidError(problems)
    return {
        host: {
            service.service: {"declared": service.declared, "fingerprint": service.fingerprint}
            for service in found.services
        }
        for host, found in plan.hosts.items()
        if found.services
    }


def _gaps(plan: Plan) -> Iterator[tuple[tuple[str, ...], str]]:
    if plan.error or plan.problems or not any(host.services for host in plan.hosts.values()):
        yield ("hosts",), f"the plan did not come about: {plan.error or 'no service was planned'}"
    for name, host in plan.hosts.items():
        if host.error or host.problems:
            yield ("hosts", name), host.error or "the declaration was not valid"
        for service in host.services:
            if service.verdict not in ("changes", "unchanged") or not service.fingerprint:
                yield ("hosts", name, service.service), f"it was {service.verdict}: {service.message}"


def missing(plan: Planned, hosts: Any) -> list[str]:
    """Planned hosts that are not among these."""
    return sorted(set(plan) - set(hosts))
