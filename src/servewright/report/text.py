"""The final report of a run, for people."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from servewright.driver.results import RunResult
from servewright.report import tables
from servewright.report.exit_code import MEANING
from servewright.report.layout import Line, labelled, listed
from servewright.report.service import block, word
from servewright.report.style import clean


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
    """What is not about a service."""
    if result.error:
        yield [("error", "bad"), (f"  {clean(result.error)}", "")]
    yield from _problems(result, width)
    for host, found in result.hosts.items():
        if found.error:
            yield [(f"{host}  ", "strong"), ("UNREACHABLE" if found.unreachable else "ERROR", "bad")]
            yield from labelled("reason", found.error, width)


def _problems(result: RunResult, width: int | None) -> Iterable[Line]:
    """Each problem once: hosts of one group share their declaration, and so its problems."""
    where: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for problem in result.problems:
        where.setdefault(_key(problem), (problem, []))
    for host, found in result.hosts.items():
        for problem in found.problems:
            where.setdefault(_key(problem), (problem, []))[1].append(host)
    for problem, hosts in where.values():
        place = f"{problem['file']}:{problem.get('line', 0)}" if problem.get("file") else "inventory"
        yield [(f"{place}  ", "strong"), ("INVALID", "bad"), (f"  {', '.join(hosts)}" if hosts else "", "faint")]
        yield from labelled("key", problem.get("path", ""), width)
        yield from labelled("problem", problem.get("message", ""), width)
        if problem.get("hint"):
            yield from labelled("hint", problem["hint"], width)
    if len(where) > 1:
        yield [(f"{len(where)} problems", "bad")]


def _key(problem: dict[str, Any]) -> str:
    return repr([problem.get(key) for key in ("file", "line", "path", "message")])


def _body(result: RunResult, width: int | None, verbose: bool) -> list[Line]:
    services = [(host, service) for host, found in result.hosts.items() for service in found.services]
    if result.command == "status":
        return tables.status(result, width)
    if result.command == "history":
        return tables.history(result, width)
    lines: list[Line] = []
    for host, service in services:
        if result.command in _VERBATIM and service.get("verdict") == "ok":
            lines += _verbatim(host, service, _VERBATIM[result.command](service), bool(lines))
        else:
            lines += block(host, service, result.command, width, verbose)
    for host, found in result.hosts.items():
        if not (found.services or found.problems or found.error):
            lines.append([(f"{host}  ", "strong"), ("no services", "faint")])
    if result.services:
        lines += listed("valid", result.services, width, "good")
    if len(services) > 1 and result.command not in _VERBATIM:
        counts = Counter(word(service)[0] for _, service in services)
        summary = ", ".join(f"{count} {what}" for what, count in counts.items())
        lines.append([(f"{len(services)} services: {summary}", "faint")])
    return lines


def _verbatim(host: str, service: dict[str, Any], texts: list[Any], apart: bool) -> list[Line]:
    """Foreign text under a comment that says whose it is, so that the whole can be saved or searched."""
    lines: list[Line] = [[]] if apart else []
    lines.append([(f"# {host} {service.get('service')}", "faint")])
    return lines + [[(clean(line), "")] for line in texts]


def _log(service: dict[str, Any]) -> list[Any]:
    return list(service.get("log") or [])


def _unit(service: dict[str, Any]) -> list[Any]:
    return str((service.get("files") or {}).get("unit", "")).splitlines()


_VERBATIM: dict[str, Callable[[dict[str, Any]], list[Any]]] = {"logs": _log, "render": _unit}
