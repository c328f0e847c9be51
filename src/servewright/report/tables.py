"""Tables for status, watch and history."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from servewright.driver.results import RunResult
from servewright.report.layout import Line, Part, labelled, table
from servewright.report.service import VERDICTS
from servewright.report.style import clean, duration

_STATE_STYLE = {"active": "good", "activating": "change", "reloading": "change", "deactivating": "change"}


def status(result: RunResult, width: int | None) -> list[Line]:
    """One row a service; what stands out follows below."""
    head = ("HOST", "SERVICE", "STATE", "RELEASE", "RESTARTS", "LAST RUN", "SINCE")
    return _overview(result, "state", head, _status_row, width)


def _overview(
    result: RunResult,
    key: str,
    head: tuple[str, ...],
    row: Callable[[str, dict[str, Any], dict[str, Any]], list[Part]],
    width: int | None,
) -> list[Line]:
    """A row for each service that has `key`, and a note on each that has not or has something to say."""
    rows: list[list[Part]] = []
    notes: list[Line] = []
    for host, service in _services(result):
        found = service.get(key)
        if isinstance(found, dict):
            rows.append(row(host, service, found))
        if service.get("message") or not isinstance(found, dict):
            text = f"{host} {service.get('service')}: {service.get('message') or service.get('verdict')}"
            notes += labelled("note", text, width, "change")
    return [*(table(head, rows) if rows else []), *notes]


def _status_row(host: str, service: dict[str, Any], state: dict[str, Any]) -> list[Part]:
    active, sub = str(state.get("active", "?")), str(state.get("sub") or "")
    words = active if sub in ("", active, "running") else f"{active} ({sub})"
    return [
        (host, "strong"),
        (str(service.get("service")), "strong"),
        (words, _STATE_STYLE.get(active, "bad")),
        *((_cell(value), "") for value in (service.get("release"), state.get("restarts"), state.get("transaction"))),
        (re.sub(r"^[A-Z][a-z]{2} (?=\d{4}-)", "", _cell(state.get("since"))), ""),  # systemd begins with the weekday
    ]


_WATCH_STYLE = {"healthy": "good", "failing": "bad", "dead": "bad"}


def watch(result: RunResult, width: int | None) -> list[Line]:
    """One row a service; what there is to say of it follows below."""
    head = ("HOST", "SERVICE", "VERDICT", "FAILURES", "SINCE", "TIMER")
    return _overview(result, "watch", head, _watch_row, width)


def _watch_row(host: str, service: dict[str, Any], found: dict[str, Any]) -> list[Part]:
    verdict, declared = str(found.get("verdict")), found.get("declared")
    timer = "none"
    if declared:
        then = "restarts it" if declared["restart"] else "only tells"
        timer = f"every {declared['every']:g} s; dead after {declared['failures']} in a row, then {then}"
    return [
        (host, "strong"),
        (str(service.get("service")), "strong"),
        (verdict, _WATCH_STYLE.get(verdict, "change")),
        (_cell(found.get("failures")), ""),
        (_local_time(found.get("since")), ""),
        (timer, ""),
    ]


def history(result: RunResult, width: int | None) -> list[Line]:
    """One table a service, newest first."""
    lines: list[Line] = []
    for host, service in _services(result):
        entries = service.get("history") or []
        lines += [[]] if lines else []
        none = "" if entries else "  no transactions yet"
        lines.append([(f"{host}  {service.get('service')}", "strong"), (none, "faint")])
        if service.get("message"):
            lines += labelled("note", service["message"], width, "change")
        head = ("TIME", "COMMAND", "RELEASE", "VERDICT", "TOOK", "BY", "REASON")
        if entries:
            lines += table(head, [_history_row(entry) for entry in entries])
    return lines


def _history_row(entry: dict[str, Any]) -> list[Part]:
    verdict, style = VERDICTS.get(str(entry.get("verdict")), (_cell(entry.get("verdict")), "change"))
    seconds = entry.get("seconds")
    return [
        (_local_time(entry.get("time")), ""),
        (_cell(entry.get("command")), ""),
        (_cell(entry.get("release")), ""),
        (verdict, style),
        (duration(seconds) if isinstance(seconds, (int, float)) else "-", ""),
        (_cell(entry.get("by")), ""),
        (_cell(entry.get("reason")), ""),
    ]


def _services(result: RunResult) -> Iterator[tuple[str, dict[str, Any]]]:
    for host, found in result.hosts.items():
        for service in found.services:
            yield host, service


def _cell(value: object) -> str:
    return "-" if value in (None, "") else clean(value)


def _local_time(text: object) -> str:
    """A time of a host (ISO 8601) on the clock of who reads it."""
    try:
        return datetime.fromisoformat(str(text)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return _cell(text)
