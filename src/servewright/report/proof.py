"""The proof of NCCL's settings, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from servewright.driver.results import RunResult
from servewright.report.layout import Line, Part, labelled, listed, table
from servewright.report.style import clean

Proof = dict[str, Any]


def proof(result: RunResult, width: int | None) -> list[Line]:
    """One service after the other: ranks, variables, what calls ran with, libraries."""
    lines: list[Line] = []
    for host, found in result.hosts.items():
        for service in found.services:
            lines += [[]] if lines else []
            release = f"  release {service['release']}" if service.get("release") is not None else ""
            lines.append([(f"{host}  {service.get('service')}", "strong"), (release, "faint")])
            if service.get("message"):
                lines += labelled("note", service["message"], width, "change")
            if isinstance(service.get("proof"), dict):
                lines += _body(service["proof"], width)
    return lines


def _body(found: Proof, width: int | None) -> Iterator[Line]:
    yield from labelled("proved", found["time"], width)
    for library in found["libraries"]:
        gone = ", replaced on disk since" if library["deleted"] else ""
        yield from labelled("library", f"{library['path']}  SHA-256 {library['sha256'] or 'not read'}{gone}", width)
    yield from listed("warning", found.get("warnings", []), width, "change")
    changes = [f"{c['field']}  {c['old']} -> {c['new']}" for c in found.get("changes", [])]
    yield from listed(f"against {found.get('compared_with')}", changes, width)
    yield []
    yield from table(("RANK", "PID", "GPU", "NCCL", "CHANNELS", "TO"), [_rank(rank) for rank in found["ranks"]])
    variables = _variables(found)
    if variables:
        yield []
        yield from table(("VARIABLE", "DECLARED", "SEEN BY THE RANKS", "FROM"), variables)
    if found["choices"]:
        yield []
        head = ("COLLECTIVE", "BYTES", "ALGORITHM", "PROTOCOL", "CHANNELS", "CALLS")
        yield from table(head, [_plain(choice.values()) for choice in found["choices"]])


def _plain(values: Any) -> list[Part]:
    return [("-" if value is None else clean(value), "") for value in values]


def _rank(rank: Proof) -> list[Part]:
    joined = [f"rank {one['to']} via {one['via']} ({one['channels']})" for one in rank["connections"]]
    return _plain(
        [rank["rank"], rank["pid"], rank["gpu"], rank["version"], rank["channels"], ", ".join(joined) or None]
    )


def _variables(found: Proof) -> list[list[Part]]:
    """A row for each variable that was declared or seen; ranks that differ are told apart."""
    others = {item["name"]: item["source"] for item in found["undeclared"]}
    rows = []
    for name in sorted(found["declared"].keys() | others.keys()):
        seen: dict[str | None, list[str]] = {}
        for rank in found["ranks"]:
            seen.setdefault(rank["variables"].get(name), []).append(str(rank["rank"]))
        values = [
            (value or "not shown") + (f" (rank {', '.join(ranks)})" if len(seen) > 1 else "")
            for value, ranks in seen.items()
        ]
        rows.append(_plain([name, found["declared"].get(name), ", ".join(values), others.get(name, "declaration")]))
    return rows
