"""servewright nccl explain"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from servewright.cli.nccl.ending import document, ending
from servewright.cli.options import Inventory, Json, Services

if TYPE_CHECKING:
    from servewright.cli.nccl.declared import Declared
    from servewright.nccl.explain import Explanation
    from servewright.report.layout import Line


@ending
def explain(
    context: typer.Context,
    services: Services = None,
    inventory: Inventory = None,
    json: Json = False,
) -> int:
    """Say where each setting comes from and what it does here."""
    from servewright.cli.nccl import declared
    from servewright.nccl.explain import explain as explanations

    found = [(item, explanations(item.rows, item.facts)) for item in declared.services(inventory, services or [])]
    if json:
        document({"version": 1, "services": [_as_dict(item, rows) for item, rows in found]})
        return 0
    from servewright.report.layout import for_output

    sys.stdout.write(for_output(lambda width: [line for row in found for line in _lines(*row, width)]))
    return 0


def _as_dict(item: Declared, rows: list[Explanation]) -> dict[str, Any]:
    return {
        "service": item.service.name,
        "profile": item.service.nccl.profile,
        "settings": [
            {
                "variable": row.variable,
                "value": row.value,
                "origin": row.origin,
                "file": item.origins[row.variable].file if row.variable in item.origins else None,
                "line": item.origins[row.variable].line if row.variable in item.origins else None,
                "reason": row.reason,
                "meaning": row.meaning,
                "effect": row.effect,
                "why_not": list(row.why_not),
                "findings": [finding.id for finding in row.findings],
            }
            for row in rows
        ],
    }


def _lines(item: Declared, rows: list[Explanation], width: int | None) -> list[Line]:
    from servewright.report.layout import labelled

    service = item.service
    head = f"{service.engine} {service.version}, profile {service.nccl.profile or 'none'}"
    lines: list[Line] = [[(service.name, "strong"), (f"  {head}", "")]]
    if not rows:
        lines += labelled("", "nothing is set; NCCL chooses by itself", width)
    for row in rows:
        at = item.origins.get(row.variable)
        lines.append([(f"  {row.variable}={row.value}", "strong")])
        lines += labelled("from", f"{row.origin} ({at})" if at else row.origin, width)
        # Of a variable that the inventory sets by itself nobody wrote down a reason.
        lines += labelled("why", row.reason, width) if row.origin != "inventory" else []
        lines += labelled("does", row.meaning, width)
        lines += labelled("effect", "possible" if row.effect else f"none: {' '.join(row.why_not)}", width)
        for finding in row.findings:
            if not finding.no_effect:
                lines += labelled(finding.severity, f"{finding.id}: {finding.message}", width)
    return lines
