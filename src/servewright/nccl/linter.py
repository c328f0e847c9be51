"""Finds NCCL settings that do not do what their author meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from . import reading, registry, selection, values, version
from .facts import Facts
from .finding import Finding, Problem
from .registry import Override, Variable
from .rules import Settings, book
from .sources import Location

_ORDER = {"error": 0, "warning": 1, "info": 2}
_TUNING = f"NCCL {version.render(registry.GUIDE)} src/graph/tuning.cc"


def lint(
    environment: Mapping[str, str], facts: Facts | None = None, origins: Mapping[str, Location] | None = None
) -> list[Finding]:
    """The findings on an environment, the most severe first.

    Variables that have nothing to do with NCCL are passed over. An unknown NCCL version is judged as
    registry.GUIDE, but no variable is called too new for it. origins tell where variables were set.
    """
    settings = Settings(environment, facts or Facts())
    found = [*_alone(settings), *_selections(settings), *_rules(settings)]
    found.sort(key=lambda finding: (_ORDER[finding.severity], finding.variable or "", finding.id))
    return [replace(finding, location=(origins or {}).get(finding.variable or "")) for finding in found]


def _alone(settings: Settings) -> Iterator[Finding]:
    """What there is to say about each variable on its own."""
    for name, value in settings.environment.items():
        if not registry.concerns(name):
            continue
        variable = registry.variables().get(name)
        problems = _known(variable, value, settings) if variable else _stranger(name, value)
        for problem in problems:
            yield problem.of(name, value, variable.sources[0] if variable else "")


def _stranger(name: str, value: str) -> Iterator[Problem]:
    """A name that is not in the table."""
    clean = name.strip().removeprefix("export ").strip()
    newest = version.render(registry.LATEST)
    if name != clean:
        yield Problem(
            "NCCL014",
            "error",
            f"NCCL sets a variable named {name!r}, spaces and all, and never looks at it.",
            f"write {clean}={value.strip()}, without export and without spaces around =",
            True,
            "NCCL 2.30.7 src/misc/param.cc setEnvFile",
        )
    elif not registry.foreign(name):
        near = registry.nearest(name)
        yield Problem(
            "NCCL001",
            "error" if near else "warning",
            "NCCL does not know this variable and never says so.",
            f"did you mean {near}?" if near else "remove it, unless a plugin reads it",
            True,
            f"not read by NCCL 2.18 to {newest}",
        )


def _known(variable: Variable, value: str, settings: Settings) -> Iterator[Problem]:
    aged = list(_aged(variable, value, settings.facts))
    yield from aged
    if any(problem.no_effect for problem in aged):
        return
    yield from _void(variable, value, settings)
    if value:
        yield from values.judge(variable.at(settings.nccl), value, settings)
    else:
        yield Problem(
            "NCCL018",
            "info",
            "It is set but empty: NCCL keeps its default, and a value in its settings files is hidden.",
            "give it a value, or remove it",
            True,
        )


def _aged(variable: Variable, value: str, facts: Facts) -> Iterator[Problem]:
    """Whether the version at hand has the variable, and under which name."""
    nccl = facts.nccl_version or registry.GUIDE
    heir = variable.replaced_by
    if variable.removed and nccl >= variable.removed:
        yield Problem(
            "NCCL002",
            "error",
            f"NCCL {version.render(variable.removed)} removed it; it is not read any more.",
            f"use {heir}" if heir else "remove it",
            True,
        )
    elif variable.since and facts.nccl_version and nccl < variable.since:
        since = version.render(variable.since)
        yield Problem(
            "NCCL002",
            "error",
            f"It came with NCCL {since}; {version.render(nccl)} does not read it.",
            f"remove it, or use NCCL {since} or later",
            True,
        )
    elif variable.deprecated_since and nccl >= variable.deprecated_since:
        since = f" since NCCL {version.render(variable.deprecated_since)}" if variable.since else ""
        if variable.name == "NCCL_CHECK_POINTERS":
            value = "DEBUG_LOCAL" if reading.integer(value) == 1 else "DEFAULT"
        yield Problem(
            "NCCL003",
            "warning",
            f"It is deprecated{since}, but still read.",
            f"write {heir}={value}" if heir else "remove it",
        )


def _void(variable: Variable, value: str, settings: Settings) -> Iterator[Problem]:
    """Why the topology or the engine leaves a setting without effect."""
    facts = settings.facts
    one_host = facts.nodes == 1 and settings.number("NCCL_SHM_DISABLE") != 1
    if variable.topology == "nvlink" and facts.interconnect == "pcie":
        yield Problem(
            "NCCL015",
            "info",
            "It acts on NVLink, and this host's GPUs are joined by PCIe.",
            "remove it",
            True,
        )
    if variable.topology == "network" and one_host:
        yield Problem(
            "NCCL015",
            "info",
            "It acts on traffic between hosts, and this service runs on one.",
            "remove it",
            True,
        )
    if facts.engine and variable.component in {"vllm", "sglang"} and variable.component != facts.engine:
        yield Problem(
            "NCCL017",
            "info",
            f"{variable.component} reads it, but the engine is {facts.engine}.",
            "remove it",
            True,
        )
    for override in registry.overrides():
        if override.variable == variable.name and override.value != value and _applies(override, settings):
            because = "" if override.when == "always" else f" because of {override.when}"
            what = "removes it" if override.value is None else f"sets it to {override.value}"
            yield Problem(
                "NCCL016",
                "warning",
                f"{override.engine} {what}{because}; the value here is lost.",
                "remove it",
                True,
                override.source,
            )


def _applies(override: Override, settings: Settings) -> bool:
    """Whether an engine overrides a variable that the user has set."""
    facts = settings.facts
    if facts.engine != override.engine or override.when == "unset":
        return False
    if override.since or override.until:
        if facts.engine_version is None:
            return False
        engine = version.parse(facts.engine_version)
        if override.since and engine < version.parse(override.since):
            return False
        if override.until and engine >= version.parse(override.until):
            return False
    if override.when.startswith("--"):
        return settings.has_flag(override.when) is True
    name, separator, value = override.when.partition("=")
    return not separator or settings.environment.get(name) == value


def _selections(settings: Settings) -> Iterator[Finding]:
    """NCCL_ALGO and NCCL_PROTO, alone and together."""
    environment, nccl, facts = settings.environment, settings.nccl, settings.facts
    strict = selection.rules().read_as(nccl).strict
    collnet = settings.number("NCCL_COLLNET_ENABLE") == 1
    names: tuple[Literal["NCCL_ALGO"], Literal["NCCL_PROTO"]] = ("NCCL_ALGO", "NCCL_PROTO")
    given = {name: environment.get(name, "") for name in names}
    if any(value != value.strip() or value[:1] in {'"', "'"} for value in given.values()):
        return  # NCCL014 says so
    broken = False
    for name in names:
        chosen = selection.read(name, given[name], nccl)
        for part in chosen.problems:
            broken = True
            problem = _unread(part, strict, selection.rules().words(name, nccl))
            yield problem.of(name, given[name], f"{_TUNING} parseList")
        for word in sorted(chosen.listed) if name == "NCCL_ALGO" else ():
            why = selection.unavailable(word, facts, collnet)
            if why:
                yield Finding(
                    "NCCL012",
                    "error" if facts.interconnect == "pcie" else "warning",
                    name,
                    given[name],
                    f"{word} cannot run here: {why}.",
                    f"take {word} out of the list",
                    _TUNING,
                )
    left = [] if broken else selection.stranded(given["NCCL_ALGO"], given["NCCL_PROTO"], nccl, facts, collnet)
    if left:
        name = "NCCL_ALGO" if given["NCCL_ALGO"] else "NCCL_PROTO"
        yield Finding(
            "NCCL013",
            "error",
            name,
            given[name],
            f"{', '.join(left)}: no algorithm and protocol left, so the first such call fails with 'no "
            "algorithm/protocol available'. Engines call more than all-reduce.",
            "list Ring as well" if name == "NCCL_ALGO" else "list LL or Simple as well",
            f"{_TUNING}; NVIDIA/nccl#1709",
        )


def _unread(part: selection.Problem, strict: bool, words: tuple[str, ...]) -> Problem:
    """A part of NCCL_ALGO or NCCL_PROTO that NCCL cannot read."""
    fails = "every communicator fails to start" if strict else "NCCL ignores it without a word"
    known = words if part.kind == "word" else selection.rules().collectives
    better = f"write {part.nearest}" if part.nearest else f"use {', '.join(known)}"
    if part.kind == "word":
        return Problem("NCCL010", "error", f"NCCL does not know {part.part!r}; {fails}.", better, not strict)
    if part.kind == "collective":
        return Problem("NCCL011", "error", f"{part.part!r} is not a collective; {fails}.", better)
    if part.kind == "order":
        return Problem(
            "NCCL011",
            "error",
            f"Only the first part may lack a collective, and {part.part!r} does; {fails}.",
            "write collective:list after the first semicolon",
        )
    return Problem(
        "NCCL011",
        "error",
        "Lists per collective came with NCCL 2.24; this version reads one list.",
        "list algorithms or protocols only, separated by commas",
    )


def _rules(settings: Settings) -> Iterator[Finding]:
    """The rules that are data."""
    for identifier, rule in book().rules.items():
        if not settings.holds(rule.when):
            continue
        names: list[str | None] = [name for name in rule.variables if name in settings.environment]
        if rule.prefix:
            names += [name for name in settings.environment if name.startswith(rule.prefix)]
        if not rule.variables and not rule.prefix:
            names = [None]
        for name in names:
            if name in rule.exempt:
                continue
            value = settings.environment[name] if name else None
            message = rule.message.format_map(_Texts(settings.environment, value or ""))
            yield Finding(
                identifier, rule.severity, name, value, message, rule.suggestion, rule.source, rule.no_effect
            )


class _Texts(dict[str, str]):
    """What a rule's message may name: {value}, and any variable."""

    def __init__(self, environment: Mapping[str, str], value: str) -> None:
        super().__init__(environment, value=value)

    def __missing__(self, key: str) -> str:
        return ""
