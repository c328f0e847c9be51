"""What a run found, as cases that passed or failed: the common ground of JUnit, GitHub, Markdown and HTML."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from servewright.driver.results import HostResult, RunResult
from servewright.report.exit_code import CHANGES, DONE, ERROR, of_verdict
from servewright.report.style import clean
from servewright.report.text import problems

Outcome = Literal["passed", "warning", "failed", "error", "skipped"]
BAD: tuple[Outcome, ...] = ("failed", "error")


@dataclass(frozen=True)
class Case:
    """One thing that was looked at. `kind` says what it is, `detail` holds evidence, consequence and repair, several
    lines."""

    kind: str
    name: str
    outcome: Outcome
    message: str = ""
    detail: str = ""
    seconds: float = 0.0
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Suite:
    """The cases of one service, of a host ("" for the service), or of the run itself ("" for both)."""

    host: str
    service: str
    cases: list[Case]
    log: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.host} {self.service}".strip() or "run"


def suites(result: RunResult) -> list[Suite]:
    """Everything that has an outcome, in the order of the hosts. Nothing that was refused or not reached is missing."""
    found = [Suite("", "", list(_of_run(result)))]
    for host, of_host in result.hosts.items():
        found.append(Suite(host, "", list(_of_host(of_host, result))))
        for service in of_host.services:
            log = [clean(line) for line in service.get("log") or []]
            found.append(Suite(host, str(service.get("service", "?")), list(_of_service(service, result)), log))
    return [suite for suite in found if suite.cases]


def evidence(item: dict[str, Any]) -> str:
    """Evidence, consequence and repair of a gate, check or finding, as text."""
    found = item.get("evidence")
    lines = [json.dumps(found, indent=2, ensure_ascii=False)] if found else []
    if item.get("consequence"):
        lines += [f"consequence: {item['consequence']}"]
    if item.get("repair"):
        restart = f" (needs {'a' if item['needs_restart'] else 'no'} restart)" if "needs_restart" in item else ""
        lines += [f"repair: {item['repair']}{restart}"]
    return "\n".join(lines)


def _of_run(result: RunResult) -> Iterator[Case]:
    if result.error:
        yield Case("run", result.command, "error", clean(result.error))
    if result.interrupted:
        name = signal.Signals(result.interrupted).name
        yield Case("run", result.command, "error", f"stopped by {name} before there was a verdict")
    for problem, hosts in problems(result):
        hint = f"hint: {problem['hint']}\n" if problem.get("hint") else ""
        yield Case(
            "declaration",
            str(problem.get("path") or "inventory"),
            "failed",
            clean(problem.get("message", "")),
            hint + (f"hosts: {', '.join(hosts)}" if hosts else ""),
            file=str(problem.get("file") or ""),
            line=int(problem.get("line") or 0),
        )
    for service in result.services:
        yield Case("declaration", service, "passed")


def _of_host(host: HostResult, result: RunResult) -> Iterator[Case]:
    if host.error:
        yield Case("host", "unreachable" if host.unreachable else "error", "error", clean(host.error))
    if host.note:
        yield Case("host", "no services", "failed" if result.nothing_declared else "warning", clean(host.note))


def _of_service(service: dict[str, Any], result: RunResult) -> Iterator[Case]:
    verdict = str(service.get("verdict"))
    code = of_verdict(verdict)
    outcome: Outcome = "passed" if code in (DONE, CHANGES) else "error" if code == ERROR else "failed"
    if verdict == "failed":
        outcome = "failed"  # the gates found something; nothing went wrong with the run
    yield Case(
        "verdict",
        result.command,
        outcome,
        f"{verdict}: {clean(service['message'])}" if service.get("message") else verdict,
        seconds=float(service.get("seconds") or 0),
    )
    yield from _checks(service.get("checks") or [])
    yield from _gates("gate", service.get("gates") or [])
    yield from _gates("gate of the old release", service.get("rollback_gates") or [])
    for finding in service.get("findings") or []:
        message = clean(finding.get("message") or finding.get("consequence") or "")
        yield Case("finding", str(finding.get("id")), "failed", message, evidence(finding))


def _checks(checks: Iterable[dict[str, Any]]) -> Iterator[Case]:
    for check in checks:
        bad: Outcome = "warning" if check.get("severity") == "warning" else "failed"
        outcome: Outcome = "passed" if check.get("passed") else bad
        yield Case("preflight", str(check.get("id")), outcome, clean(check.get("message") or ""), evidence(check))


def _gates(kind: str, gates: Iterable[dict[str, Any]]) -> Iterator[Case]:
    for gate in gates:
        known: dict[str, Outcome] = {"passed": "passed", "failed": "failed", "skipped": "skipped"}
        yield Case(
            kind,
            str(gate.get("id")),
            known.get(str(gate.get("verdict")), "warning"),
            clean(gate.get("message") or ""),
            evidence(gate),
            float(gate.get("seconds") or 0),
        )
