"""What drift found, for people: a line of its own for each finding, with evidence, consequence and repair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from servewright.report.layout import Line, labelled, listed

_EVIDENCE = 6  # pieces of a finding on a terminal; all of them are in --json


def findings(service: dict[str, Any], width: int | None) -> Iterator[Line]:
    """What is left, then what was mended."""
    for finding in service.get("findings") or []:
        style = "bad" if finding.get("needs_restart") else "change"
        yield from labelled("drift", f"{finding['id']}  {finding['message']}", width, style)
        evidence = list(finding.get("evidence") or [])
        shown = evidence if width is None else evidence[:_EVIDENCE]
        yield from listed("", shown, width)
        if len(shown) < len(evidence):
            yield from labelled("", f"and {len(evidence) - len(shown)} more (--json)", width)
        yield from labelled("", f"so: {finding['consequence']}", width)
        restart = " (needs a restart)" if finding.get("needs_restart") else ""
        yield from labelled("", f"-> {finding['repair']}{restart}", width)
    for finding in service.get("mended") or []:
        yield from labelled("mended", f"{finding['id']}  {finding['message']}", width, "good")
