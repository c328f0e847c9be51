"""Says of each setting in force where it comes from, what it does, and whether it can have an effect here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from . import registry, sources
from .facts import Facts
from .finding import Finding
from .linter import lint
from .profiles import Resolved
from .sources import Entry, Location


@dataclass(frozen=True)
class Explanation:
    """One setting in force.

    effect: whether it can change anything here; why_not holds the reasons when it cannot. findings are all
    that the linter has to say about it. reason is the profile's, empty for a setting from a file.
    """

    variable: str
    value: str
    origin: str
    reason: str
    meaning: str
    effect: bool
    why_not: tuple[str, ...]
    findings: tuple[Finding, ...]


def explain(
    rows: Iterable[Resolved],
    facts: Facts | None = None,
    conf: Iterable[Entry] = (),
    etc: Iterable[Entry] = (),
) -> list[Explanation]:
    """The settings in force, by name: those of a service, then of NCCL_CONF_FILE, then of /etc/nccl.conf.

    rows come from profiles.resolve, conf and etc from sources.conf_file.
    """
    resolved = {row.variable: row for row in rows}
    environment = [Entry(row.variable, row.value, Location(row.origin)) for row in resolved.values()]
    chosen = sources.effective(environment, conf, etc)
    findings = lint(sources.values(chosen), facts, sources.origins(chosen))
    result = []
    for name, entry in sorted(chosen.items()):
        if not registry.concerns(name):
            continue
        own = tuple(finding for finding in findings if finding.variable == name)
        why_not = tuple(finding.message for finding in own if finding.no_effect)
        variable = registry.variables().get(name)
        result.append(
            Explanation(
                variable=name,
                value=entry.value,
                origin=str(entry.origin),
                reason=resolved[name].reason if name in resolved else "",
                meaning=variable.meaning if variable else "Not a variable NCCL knows.",
                effect=not why_not,
                why_not=why_not,
                findings=own,
            )
        )
    return result
