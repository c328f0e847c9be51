"""A run as Markdown, for a comment on a pull request and the summary of a CI job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from servewright.driver.results import RunResult
from servewright.report import plan
from servewright.report.cases import BAD, Case, Suite, suites
from servewright.report.exit_code import MEANING, told
from servewright.report.service import word
from servewright.report.style import clean, duration

_LOG_LINES = 50
_VALUE = 200
_TO_READ = ("consequence:", "repair:", "hint:")  # of a case's detail; evidence is for the page and JUnit
# Characters with a meaning in Markdown or HTML, and @, which would call a person.
_SPECIAL = re.compile(r"[\\`*\[\]<>&|~#@]|(?<!\w)_|_(?!\w)")


def markdown(result: RunResult, code: int) -> str:
    """The text. Whatever comes from a host or an inventory is shown as it is and can format nothing."""
    code = told(result, code)
    lines = [f"## servewright {result.command}: {MEANING.get(code, f'stopped ({code})')}", ""]
    if result.command == "plan":
        lines += [f"- **{prose(host)}**: {prose(text)}" for host, text, _ in plan.summary(result)]
        lines += [""] if result.hosts else []
    lines += _services(result)
    for suite in suites(result):
        bad = [case for case in suite.cases if case.outcome in BAD]
        shown = [*bad, *(case for case in suite.cases if case.outcome == "warning")]
        service = _service(result, suite)
        if shown or (service and plan.groups(service)):
            lines += [f"### {prose(suite.name)}", ""]
            lines += _cases(shown) if shown else []
            lines += _changes(service or {})
            lines += _log(suite) if bad else []
    return "\n".join(lines).rstrip() + "\n"


def _service(result: RunResult, suite: Suite) -> dict[str, Any] | None:
    host = result.hosts.get(suite.host)
    return next((s for s in host.services if str(s.get("service", "?")) == suite.service), None) if host else None


def _services(result: RunResult) -> Iterator[str]:
    rows = [
        [
            prose(host),
            prose(service.get("service", "?")),
            f"**{prose(word(service)[0])}**" if word(service)[1] == "bad" else prose(word(service)[0]),
            prose(plan.outcome(service)) or _release(service),
            duration(service["seconds"]) if service.get("seconds") else "",
        ]
        for host, found in result.hosts.items()
        for service in found.services
    ]
    head = ["host", "service", "verdict", "outcome", "took"]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    if rows:
        yield from _table(head, rows)


def _release(service: dict[str, Any]) -> str:
    release = service.get("release")
    return "" if release is None else f"release {prose(release)} serves"


def _cases(cases: Iterable[Case]) -> Iterator[str]:
    for case in cases:
        place = f" ({code(f'{case.file}:{case.line}')})" if case.file else ""
        name = f"{prose(case.kind)} {prose(case.name)}"
        name = f"**{name}**" if case.outcome in BAD else f"{name} (warning)"
        yield f"- {name}: {prose(case.message)}{place}"
        yield from (f"  - {prose(line)}" for line in case.detail.splitlines() if line.startswith(_TO_READ))
    yield ""


def _changes(service: dict[str, Any]) -> Iterator[str]:
    rows = []
    for group, changes in plan.groups(service):
        for change in changes:
            old, new = plan.values(change, _VALUE)
            rows.append([prose(group.title), *(code(text) for text in (str(change.get("field")), old, new))])
            rows[-1].append(code(plan.source(change)) if plan.source(change) else "")
    if rows:
        yield from _table(("consequence", "field", "old", "new", "from"), rows)


def _log(suite: Suite) -> Iterator[str]:
    lines = suite.log[-_LOG_LINES:]
    if lines:
        longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
        fence = "`" * max(3, longest + 1)
        yield from ("<details><summary>last lines of the log</summary>", "", fence + "text")
        yield from lines
        yield from (fence, "", "</details>", "")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def prose(text: object) -> str:
    """Foreign text on one line in which nothing has a meaning."""
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", clean(text))


def code(text: object) -> str:
    """Foreign text as a span of code, which also stands in a cell of a table."""
    shown = clean(text).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    return f"{fence} {shown} {fence}" if "`" in shown else f"`{shown}`"
