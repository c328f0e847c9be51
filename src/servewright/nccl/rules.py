"""The linter's rules that are data: what must hold, and what is said when it does. They are in rules.yml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from . import data, reading, registry, selection
from .facts import Facts
from .version import Version

Severity = Literal["error", "warning", "info"]


class Product(data.Row):
    variables: tuple[str, ...]
    limit: int


class When(data.Row):
    """What must hold; see the head of rules.yml."""

    set: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    reads: dict[str, int | str | tuple[str, ...]] = {}
    lacks: dict[Literal["NCCL_ALGO", "NCCL_PROTO"], str] = {}
    only: dict[Literal["NCCL_ALGO", "NCCL_PROTO"], str] = {}
    forces: dict[Literal["NCCL_ALGO", "NCCL_PROTO"], str] = {}
    above: tuple[str, str] | None = None
    product_above: Product | None = None
    p2p_off: bool = False
    facts: dict[str, int | str | bool] = {}
    flag_missing: str | None = None
    any: tuple[When, ...] = ()
    since: Version | None = None
    until: Version | None = None


class Rule(data.Row):
    title: str
    severity: Severity
    variables: tuple[str, ...] = ()
    prefix: str | None = None
    exempt: tuple[str, ...] = ()
    when: When
    no_effect: bool = False
    message: str
    suggestion: str
    source: str


class Check(data.Row):
    title: str


class Book(data.Row):
    checks: dict[str, Check]
    rules: dict[str, Rule]

    def title(self, identifier: str) -> str:
        return (self.checks.get(identifier) or self.rules[identifier]).title


@lru_cache(maxsize=1)
def book() -> Book:
    return Book.model_validate(data.load("rules.yml"))


class Settings:
    """An environment and the facts around it, asked the way the rules ask."""

    def __init__(self, environment: Mapping[str, str], facts: Facts) -> None:
        self.environment = environment
        self.facts = facts
        self.nccl = facts.nccl_version or registry.GUIDE

    def number(self, name: str) -> int | None:
        """What NCCL reads for a number, None when it is unset or NCCL keeps its default."""
        return reading.integer(self.environment[name]) if name in self.environment else None

    def p2p_off(self) -> bool:
        """Whether NCCL is told to leave P2P alone, also by a level that PCIe GPUs never reach."""
        level = self.environment.get("NCCL_P2P_LEVEL", "")
        never = {"LOC"} if self.facts.interconnect != "pcie" else {"LOC", "NVL", "NVB", "C2C"}
        numbered_off = level[:1].isdigit() and reading.integer(level) == 0
        return self.number("NCCL_P2P_DISABLE") == 1 or level in never or numbered_off

    def cumem_off(self) -> bool:
        """Whether cuMem is off, by the user or by an engine that turns it off unless told otherwise."""
        if "NCCL_CUMEM_ENABLE" in self.environment:
            return self.number("NCCL_CUMEM_ENABLE") == 0
        off_unless_set = {
            override.engine
            for override in registry.overrides()
            if override.variable == "NCCL_CUMEM_ENABLE" and override.when == "unset"
        }
        return self.facts.engine in off_unless_set and not self.has_flag("--enable-symm-mem")

    def has_flag(self, flag: str) -> bool | None:
        """Whether the engine is given a flag, None when its arguments are unknown."""
        if self.facts.flags is None:
            return None
        return any(word.split("=", 1)[0].replace("_", "-") == flag for word in self.facts.flags)

    def read(self, variable: Literal["NCCL_ALGO", "NCCL_PROTO"]) -> selection.Selection:
        return selection.read(variable, self.environment.get(variable, ""), self.nccl)

    def holds(self, when: When) -> bool:
        """Whether a condition holds in full."""
        return (
            all(name in self.environment for name in when.set)
            and not any(name in self.environment for name in when.unset)
            and all(self._reads(name, wanted) for name, wanted in when.reads.items())
            and all(name in self.environment and self.read(name).lacks(w) for name, w in when.lacks.items())
            and all(self.read(name).only("AllReduce") == word for name, word in when.only.items())
            and all(self.read(name).forced(word) for name, word in when.forces.items())
            and (when.above is None or self._above(*when.above))
            and (when.product_above is None or self._product(when.product_above))
            and (not when.p2p_off or self.p2p_off())
            and all(self._fact(name) == wanted for name, wanted in when.facts.items())
            and (when.flag_missing is None or self.has_flag(when.flag_missing) is False)
            and (not when.any or any(self.holds(inner) for inner in when.any))
            and (when.since is None or self.nccl >= when.since)
            and (when.until is None or self.nccl < when.until)
        )

    def _reads(self, name: str, wanted: int | str | tuple[str, ...]) -> bool:
        if isinstance(wanted, int):
            return self.number(name) == wanted
        words = (wanted,) if isinstance(wanted, str) else wanted
        return self.environment.get(name, "").strip().lower() in {word.lower() for word in words}

    def _above(self, first: str, second: str) -> bool:
        low, high = self.number(first), self.number(second)
        return low is not None and high is not None and low > high > 0

    def _product(self, product: Product) -> bool:
        result = 1
        for name in product.variables:
            result *= self.number(name) or 1
        return result > product.limit

    def _fact(self, name: str) -> object:
        if name == "capability_major":
            return self.facts.compute_capability[0] if self.facts.compute_capability else None
        return getattr(self.facts, name)
