"""A run as one HTML page that needs nothing beside itself: no script, no font, no other file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2

from servewright import __version__
from servewright.driver.results import RunResult
from servewright.report import plan
from servewright.report.cases import BAD, Suite, evidence, suites
from servewright.report.exit_code import CHANGES, DONE, MEANING, told
from servewright.report.performance import chart
from servewright.report.service import word
from servewright.report.style import clean, duration, writable
from servewright.report.timeline import timeline

_LOG_LINES = 200


def html(result: RunResult, code: int, when: datetime) -> str:
    """The page. All that comes from a host or an inventory is text in it, never markup."""
    found = told(result, code)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            title=f"{result.command}: {MEANING.get(found, f'stopped ({found})')}",
            style="good" if found == DONE else "change" if found == CHANGES else "bad",
            result=result,
            code=code,
            when=when,
            version=__version__,
            plan_summary=plan.summary(result) if result.command == "plan" else [],
            sections=[_section(number, suite, result) for number, suite in enumerate(suites(result))],
        )
    )


def _section(number: int, suite: Suite, result: RunResult) -> dict[str, Any]:
    """What the template shows of one service, host, or of the run."""
    host = result.hosts.get(suite.host)
    services = host.services if host and suite.service else []
    service = next((s for s in services if str(s.get("service", "?")) == suite.service), {})
    shown, style = word(service) if service else ("", "bad" if any(c.outcome in BAD for c in suite.cases) else "good")
    return {
        "id": f"part-{number}",
        "suite": suite,
        "verdict": shown,
        "style": style,
        "service": service,
        "message": clean(service.get("message") or ""),
        "outcome": plan.outcome(service),
        "downtime": plan.downtime(service),
        "groups": plan.groups(service),
        "checks": [case for case in suite.cases if case.kind == "preflight"],
        "gates": [case for case in suite.cases if case.kind == "gate"],
        "restored": [case for case in suite.cases if case.kind == "gate of the old release"],
        "others": [case for case in suite.cases if case.kind in ("declaration", "run", "host", "finding")],
        "timeline": timeline(service.get("steps") or []),
        "chart": chart(service.get("gates") or []),
        "diagnosis": _diagnosis(service.get("cause")),
        "log": suite.log[-_LOG_LINES:],
        "next_steps": [clean(step) for step in service.get("next_steps") or []],
    }


def _diagnosis(cause: object) -> list[tuple[str, str]]:
    """What is known about why an engine failed, each under its name."""
    known = cause if isinstance(cause, Mapping) else {}
    names = (("what", "What happened"), ("line", "Seen in the log"), ("change", "What to change"), ("source", "Source"))
    found = [(title, plan.value(known[name])) for name, title in names if known.get(name)]
    if "retry" in known:
        found.append(("A retry can help", "yes" if known["retry"] else "no"))
    return found


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("servewright.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Of a macro comes markup, which is a kind of str, and whose parts have gone this way already.
        finalize=lambda value: writable(value) if type(value) is str else value,
    )
    environment.filters |= {"duration": duration, "clean": clean, "value": plan.value, "source": plan.source}
    environment.globals["evidence"] = evidence
    return environment
