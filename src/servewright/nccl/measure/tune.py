"""From many settings to the one for each message size, and the proof that it holds, within a limited time.

Sweep: every setting on the communicator of one and the same start, a few starts. Finals: those that may be the best
at a size, many starts. The choice follows from the finals alone. Verification: the chosen table against every single
environment, each in starts of its own, in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import cases, choose, compare
from .cases import Case, Environment, Setting, Topology
from .record import Record
from .sizes import Message, Phase

SMALL = 512 << 10
"""Below this starts of one setting differ by more than what there is to choose between settings."""
LARGE_EVERY = 4
"""One round in so many verifies large messages as well: their times spread little and take long."""
ALLOWED = 1.03
"""The part by which the table may be slower than any single environment at any size."""
TUNED = "tuned"
# Of the time: what finds candidates, what chooses among them, and the rest verifies.
SWEEP_SHARE, FINALS_SHARE = 0.2, 0.2
SWEEP_STARTS, FINALS_STARTS, VERIFY_ROUNDS = 8, 30, 40
SWEEP_REPEATS, PRUNE = 8, 1.6
# As many as start at once: processes that wait cost memory, and NCCL's buffers can take gigabytes each.
TRIAL_GANG = 4
GANG = 8
ABLATION_SHARE = 0.2


class NothingMeasuredError(RuntimeError):
    """A phase brought no times; the diagnoses of its record say why."""

    def __init__(self, phase: str, found: Record) -> None:
        said = next(iter(found.diagnoses), None)
        super().__init__(f"{phase}: {said.name}: {said.to_do}" if said else f"{phase}: nothing was measured")
        self.record = found


@dataclass(frozen=True)
class Plan:
    """What to tune, and how long.

    profiles: single environments to be beaten, by name. plugin: the built library; None chooses a single environment.
    seconds: for all that is measured.
    """

    topology: Topology
    ranks: int
    messages: Sequence[Message]
    profiles: Mapping[str, Environment]
    weights: Mapping[Phase, float]
    seconds: float
    plugin: str | None
    channels: Sequence[int] = cases.CHANNELS

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(message.bytes for message in self.messages)

    @property
    def candidates(self) -> list[Setting]:
        return cases.settings(self.topology, self.channels)

    @property
    def wide(self) -> dict[str, str]:
        """The environment of everything that is chosen by the plugin."""
        return cases.wide(self.topology, max(self.channels))


Measure = Callable[[str, Iterator[list[Case]]], Record]
"""Measures gangs of cases under a phase's name until there is no other."""


def paced(
    gangs: Iterator[list[Case]], seconds: float, least: int = 1, clock: Callable[[], float] = time.monotonic
) -> Iterator[list[Case]]:
    """Gangs until the next would likely end after `seconds`, but `least` in any case."""
    began, longest = clock(), 0.0
    for number, gang in enumerate(gangs, 1):
        if number > least and clock() - began + longest > seconds:
            return
        at = clock()
        yield gang
        longest = max(longest, clock() - at)


def in_gangs(starts: Sequence[Case], size: int) -> Iterator[list[Case]]:
    for at in range(0, len(starts), size):
        yield list(starts[at : at + size])


def by_round(found: Sequence[Case], count: int) -> Iterator[list[Case]]:
    """A gang a round: all cases, in an order of its own."""
    ordered = cases.rounds(found, count)
    return in_gangs(ordered, len(found))


def sweep_starts(plan: Plan) -> list[Case]:
    assert plan.plugin
    wanted = dict.fromkeys(plan.candidates, plan.sizes)
    return [
        replace(
            cases.trials(plan.wide, wanted, plan.plugin, plan.ranks, number), repeats=SWEEP_REPEATS, prune=PRUNE
        )
        for number in range(1, SWEEP_STARTS + 1)
    ]


def finalists(plan: Plan, sweep: Record) -> dict[int, list[Setting]]:
    summaries = compare.summarise(compare.levelled(sweep.timings))
    return choose.finalists(summaries, plan.candidates)


def finals_starts(plan: Plan, chosen: Mapping[int, Sequence[Setting]]) -> list[Case]:
    """Large sizes only in some starts, as in the verification."""
    assert plan.plugin
    found: list[Case] = []
    for number in range(1, FINALS_STARTS + 1):
        wanted: dict[Setting, list[int]] = {}
        for size, settings in sorted(chosen.items()):
            if size <= SMALL or number % LARGE_EVERY == 1:
                for setting in settings:
                    wanted.setdefault(setting, []).append(size)
        if wanted:
            found.append(cases.trials(plan.wide, wanted, plan.plugin, plan.ranks, number))
    return found


def table(plan: Plan, finals: Record, remark: str) -> str:
    """The tuner table that follows from the finals."""
    summaries = compare.summarise(compare.levelled(finals.timings))
    chosen = choose.bands(summaries, plan.candidates, partial=True)
    return choose.table(chosen, plan.ranks, remark)


def singles(plan: Plan, sweep: Record) -> list[Case]:
    """The environments to beat: the profiles, and as variables the best of the sweep for decode and by weight."""
    found = cases.bench(plan.profiles)
    summaries = compare.summarise(compare.levelled(sweep.timings))
    decode: Mapping[Phase, float] = {"decode": 1.0, "prefill": 0.0}
    for weights in (decode, plan.weights):
        best = choose.single(summaries, plan.messages, weights)[0].case
        case = Case(f"{best} everywhere", {**plan.wide, **cases.everywhere(Setting.read(best))})
        if case.name not in {other.name for other in found}:
            found.append(case)
    return found


def verification(plan: Plan, chosen: str, others: Sequence[Case]) -> Iterator[list[Case]]:
    assert plan.plugin
    tuned = Case(TUNED, {**plan.wide, cases.PLUGIN: plan.plugin}, {cases.TABLE: chosen})
    small = tuple(size for size in plan.sizes if size <= SMALL)
    for number, gang in enumerate(by_round([tuned, *others], VERIFY_ROUNDS), 1):
        whole = not small or number % LARGE_EVERY == 1
        yield [replace(case, sizes=plan.sizes if whole else small) for case in gang]


@dataclass(frozen=True)
class Row:
    """The table against one single environment at one size."""

    bytes: int
    other: str
    found: compare.Paired

    @property
    def holds(self) -> str:
        """Whether the table is at most ALLOWED as slow: yes, no, or not shown because the interval holds both."""
        if self.found.high <= ALLOWED:
            return "yes"
        return "no" if self.found.low > ALLOWED else "not shown"


def rows(plan: Plan, verified: Record) -> list[Row]:
    found: list[Row] = []
    for case in compare.cases(compare.summarise(verified.timings)):
        for size in plan.sizes:
            if case == TUNED:
                continue
            pair = compare.paired(verified.timings, TUNED, case, cases.COLLECTIVE, size)
            if pair:
                found.append(Row(size, case, pair))
    return found


@dataclass(frozen=True)
class Outcome:
    """chosen: the table, or None where one environment was chosen. environment: what a service is to be started with,
    less plugin and table."""

    how: str
    chosen: str | None
    environment: dict[str, str]
    rows: list[Row]
    scores: list[choose.Score]

    def as_json(self) -> dict[str, Any]:
        return {
            "how": self.how,
            "table": self.chosen,
            "environment": self.environment,
            "against": [
                {
                    "bytes": row.bytes,
                    "other": row.other,
                    "ratio": round(row.found.ratio, 4),
                    "low": round(row.found.low, 4),
                    "high": round(row.found.high, 4),
                    "rounds": row.found.rounds,
                    "holds": row.holds,
                }
                for row in self.rows
            ],
            "scores": [
                {
                    "case": score.case,
                    "slowdown": round(score.slowdown, 4),
                    "decode": round(score.decode, 4),
                    "prefill": round(score.prefill, 4),
                }
                for score in self.scores
            ],
        }


def run(plan: Plan, measure: Measure, clock: Callable[[], float] = time.monotonic) -> Outcome:
    """Raises NothingMeasuredError, choose.NothingToChooseError, compare.MethodError."""
    began = clock()

    def phase(name: str, gangs: Iterator[list[Case]], seconds: float, least: int = 1) -> Record:
        found = measure(name, paced(gangs, seconds, least, clock))
        if not found.timings:
            raise NothingMeasuredError(name, found)
        return found

    if plan.plugin is None:
        return _without_plugin(plan, phase)
    sweep = phase("sweep", in_gangs(sweep_starts(plan), TRIAL_GANG), plan.seconds * SWEEP_SHARE)
    starts = finals_starts(plan, finalists(plan, sweep))
    finals = phase("finals", in_gangs(starts, TRIAL_GANG), plan.seconds * FINALS_SHARE)
    chosen = table(plan, finals, "message sizes measured: " + ", ".join(map(str, plan.sizes)))
    left = plan.seconds - (clock() - began)
    verified = phase("verify", verification(plan, chosen, singles(plan, sweep)), left)
    scores = choose.single(compare.summarise(verified.timings), plan.messages, plan.weights)
    return Outcome("table", chosen, plan.wide, rows(plan, verified), scores)


def _without_plugin(plan: Plan, phase: Callable[..., Record]) -> Outcome:
    """The best single environment by weight: all in two rounds, then the better half of them for the rest."""
    swept = [Case(str(setting), cases.everywhere(setting)) for setting in plan.candidates]
    all_cases = [*cases.bench(plan.profiles), *swept]
    gangs = in_gangs(cases.rounds(all_cases, 2), GANG)
    first = phase("sweep", gangs, plan.seconds / 2, least=-(-len(all_cases) // GANG))
    scores = choose.single(compare.summarise(first.timings), plan.messages, plan.weights)
    best = [score.case for score in scores[:4]]
    finalists = [case for case in all_cases if case.name in best or case.name in plan.profiles]
    finals = phase("finals", by_round(finalists, VERIFY_ROUNDS), plan.seconds / 2)
    scores = choose.single(compare.summarise(finals.timings), plan.messages, plan.weights)
    winner = next(case for case in finalists if case.name == scores[0].case)
    return Outcome(f"single: {winner.name}", None, dict(winner.environment), [], scores)
