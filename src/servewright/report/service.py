"""One service of one host: its verdict, and what a tired person needs to know about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from servewright.report import plan
from servewright.report.drift import findings
from servewright.report.layout import Line, labelled, listed, verbatim
from servewright.report.style import duration

VERDICTS = {
    "committed": ("committed", "good"),
    "unchanged": ("unchanged", "good"),
    "ok": ("ok", "good"),
    "running": ("running", "change"),
    "changes": ("would change", "change"),
    "drift": ("drift", "change"),
    "mended": ("mended", "good"),
    "pending": ("not begun", "change"),
    "refused": ("REFUSED", "bad"),
    "busy": ("BUSY", "bad"),
    "failed": ("FAILED", "bad"),
    "error": ("ERROR", "bad"),
    "rolled_back": ("ROLLED BACK", "bad"),
    "rollback_failed": ("ROLLBACK FAILED", "bad"),
}
_LOG_LINES = 8  # of a log on a terminal, so that the verdict above is still seen; `logs` shows more
_VALUE = 60  # characters of a changed value; the rest is in --json

Service = dict[str, Any]


def word(service: Service) -> tuple[str, str]:
    """The verdict as it is shown, and its style."""
    verdict = str(service.get("verdict"))
    return VERDICTS.get(verdict, (verdict, "bad"))


def block(host: str, service: Service, command: str, width: int | None, verbose: bool = False) -> list[Line]:
    """The lines of a service: first the verdict, then what led to it, then what to do."""
    verdict, style = word(service)
    facts = [_releases(service), plan.outcome(service), duration(service["seconds"]) if service.get("seconds") else ""]
    head: Line = [(f"{host}  {service.get('service', '?')}  ", "strong"), (verdict, style)]
    head += [(f"  {fact}", "faint") for fact in facts if fact]
    checks = [check for check in _list(service, "checks") if not check.get("passed")]
    message = str(service.get("message") or "")
    if checks and message == "; ".join(str(check.get("message")) for check in checks if _fatal(check)):
        message = ""  # the checks below say the same, with what to do about it
    gates, every = _list(service, "gates"), command == "verify" or verbose
    if every and any(gate.get("message") and str(gate["message"]) in message for gate in gates):
        message = ""  # so do the gates
    lines = [head]
    if message:
        lines += labelled("reason" if style == "bad" else "note", message, width)
    lines += _changes(service, width, verbose)
    lines += findings(service, width)
    lines += _every_check(_list(service, "checks"), width) if command == "preflight" else _checks(checks, width)
    lines += _gates("gates", gates, message, width, every)
    lines += _gates("restored", _list(service, "rollback_gates"), message, width, verbose)
    if style == "bad":
        log = _list(service, "log")
        lines += verbatim("log", log if width is None else log[-_LOG_LINES:], width)
    return lines + listed("next", _next_steps(host, service), width, "strong")


def _list(service: Service, key: str) -> list[Any]:
    value = service.get(key)
    return value if isinstance(value, list) else []


def _releases(service: Service) -> str:
    release, previous, verdict = service.get("release"), service.get("previous"), service.get("verdict")
    steps = _list(service, "steps")
    if steps and "measure" in steps[0]:
        return ""  # it is about no release
    tried = steps[0].get("release") if steps else None
    if verdict == "rolled_back":
        failed = f"release {tried} failed" if tried is not None else "the new release failed"
        return f"{failed}, " + (f"release {release} serves" if release is not None else "nothing serves, as before")
    if verdict == "rollback_failed":
        return f"release {tried} failed" if tried is not None else ""
    if release is None:
        return ""
    return f"release {release}" + (f", was {previous}" if previous not in (None, release) else "")


def _changes(service: Service, width: int | None, verbose: bool) -> Iterable[Line]:
    for group, every in plan.groups(service):
        changes, derived = (every, []) if verbose else plan.told(every)
        column = min(32, max(len(str(change.get("field"))) for change in changes))
        texts = []
        for change in changes:
            source = plan.source(change)
            texts.append(f"{change.get('field')!s:<{column}}  {' -> '.join(plan.values(change, _VALUE))}")
            texts[-1] += f"  [{source}]" if source else ""
        if derived:
            texts.append(f"and {len(derived)} that follow from these, such as {derived[0]['field']} (--verbose)")
        yield from listed(group.title, texts, width, group.style)


def _checks(checks: list[dict[str, Any]], width: int | None) -> Iterable[Line]:
    for check in checks:
        label, style = ("check", "bad") if _fatal(check) else ("warning", "change")
        yield from labelled(label, check.get("message", check.get("id")), width, style)
        if check.get("repair"):
            yield from labelled("", f"-> {check['repair']}", width)


def _every_check(checks: list[dict[str, Any]], width: int | None) -> Iterable[Line]:
    """A row for each check, also for those that found nothing wrong."""
    column = max((len(str(check.get("id"))) for check in checks), default=0)
    for check in checks:
        shown, style = ("FATAL", "bad") if _fatal(check) else ("warning", "change")
        if check.get("passed"):
            shown, style = "ok", "good"
        text = f"{check.get('id')!s:<{column}}  {check.get('message') or ''}"
        yield from labelled(shown, text.rstrip(), width, style)
        if check.get("repair"):
            yield from labelled("", f"{'':<{column}}  -> {check['repair']}", width)


def _fatal(check: dict[str, Any]) -> bool:
    return check.get("severity") != "warning"


def _gates(label: str, gates: list[dict[str, Any]], said: str, width: int | None, every: bool) -> Iterable[Line]:
    """Failed gates, unless the message has said it already; all of them where they are what was asked for."""
    column = max((len(str(gate.get("id"))) for gate in gates), default=0)
    for gate in gates:
        verdict, message = str(gate.get("verdict")), str(gate.get("message") or "")
        if every or (verdict == "failed" and message not in said):
            shown, style = {"passed": ("passed", "good"), "failed": ("FAILED", "bad")}.get(verdict, (verdict, "faint"))
            of = " (of the old release)" if label == "restored" else ""
            yield from labelled(shown, f"{gate.get('id')!s:<{column}}  {message}{of}", width, style)
        if verdict == "failed" and gate.get("repair"):
            yield from labelled("", f"-> {gate['repair']}", width)
    names = {
        verdict: [str(gate.get("id")) for gate in gates if gate.get("verdict") == verdict]
        for verdict in ("passed", "skipped")
    }
    if gates and not every and sum(map(len, names.values())) == len(gates):
        text = [f"{len(found)} {verdict}: {', '.join(found)}" for verdict, found in names.items() if found]
        yield from labelled(label, "; ".join(text), width)


def _next_steps(host: str, service: Service) -> list[str]:
    """What the host proposes, or the command that shows more."""
    steps = [str(step) for step in _list(service, "next_steps")]
    what = f"{service.get('service')} --limit {host}"
    if steps:
        return steps
    return {
        "running": [f"servewright follow {what}"],
        "busy": [f"servewright follow {what}", "or wait for it with --lock-wait SECONDS"],
        "failed": [f"servewright logs {what}"],
        "rolled_back": [f"servewright logs {what}"],
        "pending": ["the same command again, when the other service of this host is done"],
    }.get(str(service.get("verdict")), [])
