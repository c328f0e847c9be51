"""Says of each setting in force where it comes from, what it does, and whether it can have an effect here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from . import registry
from .facts import Facts
from .finding import Finding
from .linter import lint
from .profiles import Resolved


@dataclass(frozen=True)
class Explanation:
    """One setting in force.

    effect: whether it can change anything here; why_not holds the reasons when it cannot. findings are all
    that the linter has to say about it. reason is the profile's.
    """

    variable: str
    value: str
    origin: str
    reason: str
    meaning: str
    effect: bool
    why_not: tuple[str, ...]
    findings: tuple[Finding, ...]


def explain(rows: Iterable[Resolved], facts: Facts | None = None) -> list[Explanation]:
    """The settings of a service, as profiles.resolve gives them, by name."""
    resolved = {row.variable: row for row in rows}
    findings = lint({name: row.value for name, row in resolved.items()}, facts)
    result = []
    for name, row in sorted(resolved.items()):
        if not registry.concerns(name):
            continue
        own = tuple(finding for finding in findings if finding.variable == name)
        why_not = tuple(finding.message for finding in own if finding.no_effect)
        variable = registry.variables().get(name)
        result.append(
            Explanation(
                variable=name,
                value=row.value,
                origin=row.origin,
                reason=row.reason,
                meaning=variable.meaning if variable else "Not a variable NCCL knows.",
                effect=not why_not,
                why_not=why_not,
                findings=own,
            )
        )
    return result
