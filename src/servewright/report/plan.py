"""What a plan comes down to: what happens to each service, and for how long it is down."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from servewright.driver.results import HostResult, RunResult
from servewright.report.style import clean, cut, duration

Change = dict[str, Any]


class Group(NamedTuple):
    """What happens to a service because of some changes: an id, what it is called, and the style it is shown in."""

    consequence: str
    title: str
    style: str


# In the order of what they cost.
GROUPS = (
    Group("stop", "stop", "bad"),
    Group("restart", "restart", "change"),
    Group("reload", "reload", "strong"),
    Group("none", "no effect", "faint"),
)
_DERIVED = "servewright"  # how release/sources.py calls the origin of what nobody declares, such as folders of caches
_MANY = 3
_CONTEXT = 12  # characters that two long values have in common and that are shown before their difference


def groups(service: dict[str, Any]) -> list[tuple[Group, list[Change]]]:
    """The changes of a service by their consequence, the dearest first, without empty groups."""
    changes = [change for change in service.get("changes") or [] if isinstance(change, dict)]
    found = [(group, [c for c in changes if c.get("consequence", "none") == group.consequence]) for group in GROUPS]
    return [(group, members) for group, members in found if members]


def told(changes: list[Change]) -> tuple[list[Change], list[Change]]:
    """The changes to show, and those that servewright derives from them, when they are so many that they hide these."""
    derived = [change for change in changes if (change.get("source") or {}).get("origin") == _DERIVED]
    if len(derived) < _MANY or len(derived) == len(changes):
        return changes, []
    return [change for change in changes if change not in derived], derived


def outcome(service: dict[str, Any]) -> str:
    """What a deploy would do to a service, in a few words; "" where that is not known."""
    if service.get("verdict") != "changes":
        return ""
    changes = service.get("changes") or []
    if any(change.get("field") == "service" and change.get("old") is None for change in changes):
        return "for the first time" + _time(service, ", loads for ")
    if any(change.get("consequence") in ("restart", "stop") for change in changes):
        return "with a restart" + _time(service, ", down for ")
    return "without a restart"


def _time(service: dict[str, Any], words: str) -> str:
    downtime = service.get("downtime")
    if not downtime:
        return ""
    return f"{words}{about(downtime['seconds'])}" + ("" if downtime.get("same_model") else " (as other models)")


def about(seconds: float) -> str:
    """A time that was only estimated: `~6 min`, `~40 s`."""
    return f"~{round(seconds / 60)} min" if seconds >= 90 else f"~{max(1, round(seconds))} s"


def downtime(service: dict[str, Any]) -> str:
    """Where the expected time comes from."""
    found = service.get("downtime")
    if not found:
        return ""
    model = "of this model" if found.get("same_model") else "of other models"
    return f"{duration(found['seconds'])}, the median of {found['of']} measured {model} on this host"


def summary(result: RunResult) -> list[tuple[str, str, str]]:
    """For each host its name, what a deploy would do there, and the style of that."""
    return [(host, *_of_host(found)) for host, found in result.hosts.items()]


def _of_host(host: HostResult) -> tuple[str, str]:
    if host.unreachable:
        return "unreachable", "bad"
    if host.error or host.problems:
        return "not known" if host.error else "the declaration is not valid", "bad"
    words = [text for text in _counts(host.services) if text]
    costly = any(group.consequence in ("restart", "stop") for service in host.services for group, _ in groups(service))
    refused = any(service.get("verdict") not in ("changes", "unchanged") for service in host.services)
    return ", ".join(words) or "no services", "bad" if refused else "change" if costly else "good"


def _counts(services: Iterable[dict[str, Any]]) -> Iterable[str]:
    first, restarts, reloads, silent, unchanged, other = [], [], [], 0, 0, []
    stops: set[str] = set()
    for service in services:
        found = {group.consequence for group, _ in groups(service)}
        text = outcome(service)
        if service.get("verdict") == "unchanged":
            unchanged += 1
        elif not text:
            other.append(str(service.get("verdict")))
        elif text.startswith("for the first time"):
            first.append(service)
        elif found & {"restart", "stop"}:
            restarts.append(service)
        elif "reload" in found:
            reloads.append(service)
        else:
            silent += 1
        stops |= {str(c.get("field")) for c in service.get("changes") or [] if c.get("consequence") == "stop"}
    yield _number(len(first), "starts for the first time", "start for the first time") + _all(first, "to load")
    yield _number(len(restarts), "restarts", "restart") + _all(restarts, "down")
    yield f"{len(stops)} stopped for it ({', '.join(sorted(stops))})" if stops else ""
    yield f"{len(reloads)} reload{'s' if len(reloads) > 1 else ''}" if reloads else ""
    yield f"{silent} without effect on the process" if silent else ""
    yield f"{unchanged} unchanged" if unchanged else ""
    yield from (f"{other.count(verdict)} {verdict}" for verdict in dict.fromkeys(other))


def _number(count: int, one: str, more: str) -> str:
    return "" if not count else f"1 service {one}" if count == 1 else f"{count} services {more}"


def _all(services: list[dict[str, Any]], what: str) -> str:
    """The time of services that go one after the other."""
    known = [service["downtime"]["seconds"] for service in services if service.get("downtime")]
    if not services or not known:
        return f" (time {what} not known)" if services else ""
    least = "at least " if len(known) < len(services) else ""
    return f" ({least}{about(sum(known))} {what})"


def source(change: Change) -> str:
    """Where the new value comes from, on one line: `group_vars/llm.yml:34`, with what is named there."""
    found = change.get("source")
    if not isinstance(found, dict):
        return ""
    place = f"{_relative(found['file'])}:{found['line']}" if found.get("file") else ""
    return clean(", ".join(part for part in (found.get("origin") or "", place) if part))


def _relative(file: str) -> str:
    """The path from the current folder, where it is in there."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def values(change: Change, width: int) -> tuple[str, str]:
    """Old and new value as text of at most `width` characters.

    Of long ones the part around the first difference, as the whole of both shows nothing.
    """
    before, after = value(change.get("old")), value(change.get("new"))
    pairs = enumerate(zip(before, after, strict=False))
    same = next((at for at, (a, b) in pairs if a != b), min(len(before), len(after)))
    if max(len(before), len(after)) > width and same > _CONTEXT:
        before, after = (f"...{text[same - _CONTEXT :]}" for text in (before, after))
    return cut(before, width), cut(after, width)


def value(found: object) -> str:
    """A value as text; text itself as it is."""
    if found is None:
        return "(none)"
    return clean(found if isinstance(found, str) and found else json.dumps(found, ensure_ascii=False))
