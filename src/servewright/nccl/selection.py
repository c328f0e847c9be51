"""NCCL_ALGO and NCCL_PROTO as NCCL reads them: what each collective may use, and what cannot be read."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from . import data
from .facts import Facts
from .version import Version

State = Literal["on", "off", "auto"]


class Algorithm(data.Row):
    since: Version
    collectives: tuple[str, ...]
    protocols: tuple[str, ...]
    needs: tuple[Literal["nvlink", "collnet", "nodes"], ...] = ()


class Reading(data.Row):
    """How a range of versions reads the two variables; see collectives.yml."""

    since: Version
    per_collective: bool
    strict: bool
    ring_fallback: bool
    unnamed_off: bool
    ll128_forced: bool


class Rules(data.Row):
    collectives: tuple[str, ...]
    protocols: tuple[str, ...]
    algorithms: dict[str, Algorithm]
    reading: tuple[Reading, ...]

    def words(self, variable: str, nccl: Version) -> tuple[str, ...]:
        """What NCCL_ALGO or NCCL_PROTO accepts in that version."""
        if variable == "NCCL_PROTO":
            return self.protocols
        return tuple(name for name, algorithm in self.algorithms.items() if algorithm.since <= nccl)

    def read_as(self, nccl: Version) -> Reading:
        known = [reading for reading in self.reading if reading.since <= nccl]
        return known[-1] if known else self.reading[0]


@lru_cache(maxsize=1)
def rules() -> Rules:
    return Rules.model_validate(data.load("collectives.yml"))


@dataclass(frozen=True)
class Problem:
    """A part of the text NCCL cannot use.

    kind: an unknown word, an unknown collective, a part out of order (only the first may lack a collective),
    or a form that the version does not have (per collective).
    """

    kind: Literal["word", "collective", "order", "form"]
    part: str
    nearest: str | None


@dataclass(frozen=True)
class Selection:
    """What a text leaves on, per collective: named are those it reaches, listed the words it turns on."""

    states: Mapping[str, Mapping[str, State]]
    named: frozenset[str]
    listed: frozenset[str]
    problems: tuple[Problem, ...] = field(default=())

    def lacks(self, word: str) -> bool:
        """True when no collective may use it."""
        return all(states[word] == "off" for states in self.states.values())

    def forced(self, word: str) -> bool:
        """True when some collective has a word turned on that NCCL would otherwise decide about."""
        return any(states[word] == "on" for states in self.states.values())

    def only(self, collective: str) -> str | None:
        """The single word a collective is left with, None if there is a choice."""
        left = [word for word, state in self.states[collective].items() if state != "off"]
        return left[0] if len(left) == 1 else None


def read(variable: Literal["NCCL_ALGO", "NCCL_PROTO"], text: str, nccl: Version) -> Selection:
    """A text as that version takes it. An empty text selects nothing and leaves everything as it is."""
    book, how = rules(), rules().read_as(nccl)
    words = book.words(variable, nccl)
    states: dict[str, dict[str, State]] = {
        collective: {word: "auto" if word == "LL128" else "on" for word in words}
        for collective in book.collectives
    }
    named: set[str] = set()
    listed: set[str] = set()
    problems: list[Problem] = []
    by_name = {collective.lower(): collective for collective in book.collectives}
    if not how.per_collective and (";" in text or ":" in text):
        problems.append(Problem("form", text, None))
    for place, entry in enumerate(_split(text, ";") if how.per_collective else [text] if text else []):
        head, *tail = _split(entry, ":") or [""]
        reached = list(book.collectives)
        if how.per_collective and tail:
            if head.lower() not in by_name:
                problems.append(Problem("collective", head, _nearest(head, book.collectives)))
                continue
            reached = [by_name[head.lower()]]
        elif how.per_collective and place:
            problems.append(Problem("order", entry, None))
            continue
        chosen = tail[0] if how.per_collective and tail else head if how.per_collective else entry
        inverted = chosen.startswith("^")
        known: set[str] = set()
        for part in _split(chosen.removeprefix("^"), ","):
            match = next((word for word in words if word.lower() == part.lower()), None)
            if match:
                known.add(match)
            else:
                problems.append(Problem("word", part, _nearest(part, words)))
        for collective in reached:
            states[collective] = {word: "on" if (word in known) != inverted else "off" for word in words}
            named.add(collective)
        listed |= set() if inverted else known
    return Selection(states, frozenset(named), frozenset(listed), tuple(problems))


def unavailable(name: str, facts: Facts, collnet: bool) -> str | None:
    """Why a host cannot run an algorithm, None when it can or too little is known."""
    needs = rules().algorithms[name].needs
    if "nvlink" in needs and facts.interconnect == "pcie":
        return "it needs NVLink and an NVSwitch, and this host's GPUs are joined by PCIe"
    if "nodes" in needs and facts.nodes == 1:
        return "it works between hosts only"
    if "collnet" in needs and not collnet:
        return "it needs a CollNet network plugin and NCCL_COLLNET_ENABLE=1"
    return None


def stranded(algo: str | None, proto: str | None, nccl: Version, facts: Facts, collnet: bool) -> list[str]:
    """The collectives that these two texts leave without a way to run; their first call fails."""
    book, how = rules(), rules().read_as(nccl)
    if how.ring_fallback or not (algo or proto):
        return []
    algorithms = read("NCCL_ALGO", algo or "", nccl)
    protocols = read("NCCL_PROTO", proto or "", nccl)
    unreached = dict.fromkeys(book.algorithms, "off" if how.unnamed_off and algo else "on")
    left: list[str] = []
    for collective in book.collectives:
        if collective not in algorithms.named | protocols.named:
            continue
        allowed = algorithms.states[collective] if collective in algorithms.named else unreached
        usable = (
            allowed[name] != "off"
            and collective in algorithm.collectives
            and any(
                _runs(protocols.states[collective][word], word, facts, how) for word in algorithm.protocols
            )
            and unavailable(name, facts, collnet) is None
            for name, algorithm in book.algorithms.items()
            if algorithm.since <= nccl
        )
        if not any(usable):
            left.append(collective)
    return left


def _runs(state: State, word: str, facts: Facts, how: Reading) -> bool:
    if word == "LL128" and facts.interconnect == "pcie" and not (state == "on" and how.ll128_forced):
        return False
    return state != "off"


def _split(text: str, separator: str) -> list[str]:
    """As strtok does: empty parts vanish."""
    return [part for part in text.split(separator) if part]


def _nearest(part: str, words: tuple[str, ...]) -> str | None:
    lowered = {word.lower(): word for word in words}
    close = difflib.get_close_matches(part.strip().lower(), lowered, n=1, cutoff=0.5)
    return lowered[close[0]] if close else None
