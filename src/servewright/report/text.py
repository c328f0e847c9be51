"""The final report of a run, for people."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from servewright.driver.results import HostResult, RunResult
from servewright.report import plan, proof, tables
from servewright.report.exit_code import MEANING
from servewright.report.layout import Line, beside, labelled
from servewright.report.service import block, word
from servewright.report.style import clean

_Block = tuple[bool, list[Line]]
"""Whether there is trouble, and the lines that belong together."""


def text(result: RunResult, code: int, width: int | None, verbose: bool = False) -> list[Line]:
    """The lines to print; `width` is that of the terminal, or None where lines must not be wrapped."""
    lines = list(_failures(result, width))
    lines += _body(result, width, verbose)
    if result.interrupted:
        lines += _interrupted(result, width)
    if code in MEANING and code:
        lines += [[(f"exit code {code}: {MEANING[code]}", "faint")]]
    return lines


def _interrupted(result: RunResult, width: int | None) -> Iterable[Line]:
    """What goes on without us, and how to see the end of it."""
    yield [("STOPPED", "bad"), (f" by {signal.Signals(result.interrupted).name} before there was a verdict", "")]
    begun = [row for row in result.unfinished if row["service"]]
    for row in begun:
        fate = f"{row['host']} {row['service']}: {row['step']}; the host brings it to a verdict by itself"
        yield from labelled("goes on", f"{fate}, a rollback included", width, "change")
        yield from labelled("next", f"servewright follow {row['service']} --limit {row['host']}", width, "strong")
    if not begun and result.command in ("deploy", "rollback"):
        hosts = ", ".join(sorted({row["host"] for row in result.unfinished})) or "a host"
        note = f"nothing is known to have begun; if it has, {hosts} brings it to a verdict by itself"
        yield from labelled("note", note, width)
        yield from labelled("next", "servewright status", width, "strong")


def _failures(result: RunResult, width: int | None) -> Iterable[Line]:
    """What is not about a host."""
    if result.error:
        yield [("error", "bad"), (f"  {clean(result.error)}", "")]
    yield from _problems(result, width)
    if result.services:
        yield [("valid", "good"), (f"  {', '.join(result.services)}", "")]


def problems(result: RunResult) -> list[tuple[dict[str, Any], list[str]]]:
    """Each problem once, with its hosts: those of one group share their declaration, and so its problems."""
    where: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for problem in result.problems:
        where.setdefault(_key(problem), (problem, []))
    for host, found in result.hosts.items():
        for problem in found.problems:
            where.setdefault(_key(problem), (problem, []))[1].append(host)
    return list(where.values())


def _problems(result: RunResult, width: int | None) -> Iterable[Line]:
    where = problems(result)
    for problem, hosts in where:
        place = str(problem.get("file") or "inventory") + (f":{problem['line']}" if problem.get("line") else "")
        yield [(f"{place}  ", "strong"), ("INVALID", "bad"), (f"  {', '.join(hosts)}" if hosts else "", "faint")]
        if problem.get("path"):
            yield from labelled("key", problem["path"], width)
        yield from labelled("problem", problem.get("message", ""), width)
        if problem.get("hint"):
            yield from labelled("hint", problem["hint"], width)
    if len(where) > 1:
        yield [(f"{len(where)} problems", "bad")]


def _key(problem: dict[str, Any]) -> str:
    return repr([problem.get(key) for key in ("file", "line", "path", "message")])


def _body(result: RunResult, width: int | None, verbose: bool) -> list[Line]:
    blocks: list[_Block] = []
    if result.command in _TABLES:
        blocks.append((False, _TABLES[result.command](result, width)))
    for host, found in result.hosts.items():
        if result.command not in _TABLES:
            blocks += [_of_service(host, service, result.command, width, verbose) for service in found.services]
        blocks.append(_of_host(host, found, width))
    # Trouble comes last, next to where the eye is when the command has ended.
    lines: list[Line] = []
    for _, block_ in sorted(blocks, key=lambda item: item[0]):
        lines += [[], *block_] if lines and len(block_) > 1 else block_
    if result.command == "plan":
        return [*lines, *([[]] if lines else []), *_plan(result, width)]
    verdicts = Counter(word(service)[0] for found in result.hosts.values() for service in found.services)
    if verdicts.total() > 1 and result.command in _COUNTED:
        summary = ", ".join(f"{count} {what}" for what, count in verdicts.items())
        lines += [[], [(f"{verdicts.total()} services: {summary}", "faint")]]
    return lines


def _plan(result: RunResult, width: int | None) -> Iterable[Line]:
    """What the plan comes down to, for each host."""
    for host, found, style in plan.summary(result):
        yield from beside((f"{host}: ", "strong"), found, width, style)


def _of_service(host: str, service: dict[str, Any], command: str, width: int | None, verbose: bool) -> _Block:
    if command in _VERBATIM and service.get("verdict") == "ok":
        return False, _verbatim(host, service, _VERBATIM[command](service))
    return word(service)[1] == "bad", block(host, service, command, width, verbose)


def _of_host(host: str, found: HostResult, width: int | None) -> _Block:
    """The lines of a host where there is nothing to tell of a service."""
    if found.error:
        head: Line = [(f"{host}  ", "strong"), ("UNREACHABLE" if found.unreachable else "ERROR", "bad")]
        return True, [head, *labelled("reason", found.error, width)]
    if found.services or found.problems:
        return False, []
    head = [(f"{host}  ", "strong"), ("no services", "change" if found.note else "faint")]
    return bool(found.note), [head, *(labelled("reason", found.note, width) if found.note else [])]


def _verbatim(host: str, service: dict[str, Any], texts: list[Any]) -> list[Line]:
    """Foreign text under a comment that says whose it is, so that the whole can be saved or searched."""
    return [[(f"# {host} {service.get('service')}", "faint")], *([(clean(line), "")] for line in texts)]


def _log(service: dict[str, Any]) -> list[Any]:
    return list(service.get("log") or [])


def _bench(result: RunResult, width: int | None) -> list[Line]:
    from servewright.report.bench import bench  # what it needs of statistics is slow to import

    return bench(result, width)


def _unit(service: dict[str, Any]) -> list[Any]:
    return str((service.get("files") or {}).get("unit", "")).splitlines()


_COUNTED = ("validate", "preflight", "plan", "deploy", "verify", "rollback", "follow", "drift")
_TABLES = {
    "status": tables.status,
    "history": tables.history,
    "watch": tables.watch,
    "proof": proof.proof,
    "bench": _bench,
}
_VERBATIM: dict[str, Callable[[dict[str, Any]], list[Any]]] = {"logs": _log, "render": _unit}
