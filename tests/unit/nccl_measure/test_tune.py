"""Tuning as a whole, on a machine that exists in numbers only."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from servewright.nccl.measure import cases, compare, record, sizes, tune
from servewright.nccl.measure.cases import Case
from servewright.nccl.measure.record import Record, Timing

SHAPE = sizes.Shape(7168, "bfloat16")
MESSAGES = sizes.messages(SHAPE)
SIX = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "NCCL_MAX_NCHANNELS": "16"}
PLAN = tune.Plan(
    topology="pcie",
    ranks=2,
    messages=MESSAGES,
    profiles={"nothing set": {}, "pcie-ll-ring": SIX},
    weights={"decode": 1.0, "prefill": 1.0},
    seconds=500.0,
    plugin="/lib/tuner.so",
)


class Machine:
    """Microseconds of a setting by size, times how slow a start is, times how unsteady a moment is.

    Small messages are fastest with LL over as many channels as there are 8 KiB, large ones with Simple over 32.
    """

    def __init__(self, unsteady: float = 0.02, starts: float = 0.08) -> None:
        self.random, self.unsteady, self.starts = random.Random(1), unsteady, starts
        self.now = 0.0
        self.phases: dict[str, list[list[Case]]] = {}

    def clock(self) -> float:
        return self.now

    @staticmethod
    def true(setting: cases.Setting, size: int) -> float:
        wanted = min(32, max(1, size // 8192))
        channels = setting.channels or wanted
        off = abs(math.log2(channels / wanted))
        tree = 1.1 if setting.algorithm == "Tree" else 1.0
        if setting.protocol == "LL":
            return (15 + size / 9000) * (1 + 0.03 * off) * tree
        return (25 + size / 32000) * (1 + 0.03 * off) * tree

    def setting(self, case: Case, size: int) -> cases.Setting:
        """What NCCL does under an environment: by default 4 channels, and the better protocol."""
        protocol = case.environment.get("NCCL_PROTO", "LL" if size < 300_000 else "Simple")
        channels = case.environment.get("NCCL_MAX_CTAS", "4" if "NCCL_MIN_CTAS" not in case.environment else None)
        return cases.Setting("Ring", protocol, int(channels) if channels else None)

    def of_table(self, text: str, size: int) -> cases.Setting:
        for line in text.splitlines():
            if not line.startswith("#"):
                _, low, high, algorithm, protocol, channels, *_ = line.split(",")
                if int(low) <= size <= int(high):
                    word = {"ll": "LL", "simple": "Simple"}[protocol]
                    return cases.Setting(algorithm.title(), word, int(channels) if channels != "-1" else None)
        raise AssertionError(size)

    def measure(self, phase: str, gangs: Iterator[list[Case]]) -> Record:
        timings: list[Timing] = []
        for gang in gangs:
            self.phases.setdefault(phase, []).append(gang)
            self.now += 5
            for case in gang:
                start = math.exp(self.random.gauss(0, self.starts))
                for name, size, setting in self._wanted(case):
                    self.now += 0.03
                    us = self.true(setting, size) * start * math.exp(self.random.gauss(0, self.unsteady))
                    timings.append(Timing(name, case.round, "all_reduce", size, us, us, us, True, 50))
        return Record({}, tuple(timings), ())

    def _wanted(self, case: Case) -> Iterator[tuple[str, int, cases.Setting]]:
        for name, trial in case.trials.items():
            for size in trial.sizes:
                yield name, size, self.of_table(trial.table, size)
        if not case.trials:
            for size in case.sizes or PLAN.sizes:
                text = case.files.get(cases.TABLE)
                yield case.name, size, self.of_table(text, size) if text else self.setting(case, size)


def test_the_table_is_as_good_as_the_truth_allows() -> None:
    machine = Machine()
    outcome = tune.run(PLAN, machine.measure, machine.clock)
    assert outcome.chosen is not None
    for size in PLAN.sizes:
        best = min(Machine.true(setting, size) for setting in PLAN.candidates)
        assert Machine.true(machine.of_table(outcome.chosen, size), size) <= best * 1.03, size
    assert outcome.environment == {"NCCL_MIN_CTAS": "32"}
    assert outcome.scores[0].case in (tune.TUNED, *[row.other for row in outcome.rows])
    large = [row for row in outcome.rows if row.bytes >= 56 << 20 and row.other == "pcie-ll-ring"]
    assert all(row.holds == "yes" and row.found.ratio < 0.5 for row in large)


def test_it_ends_in_the_time_given() -> None:
    for seconds in (200.0, 500.0):
        machine = Machine()
        tune.run(replace(PLAN, seconds=seconds), machine.measure, machine.clock)
        assert machine.now <= seconds
        assert machine.now > 0.8 * seconds or len(machine.phases["verify"]) == tune.VERIFY_ROUNDS


def test_every_single_environment_is_beaten_or_named_in_the_same_rounds() -> None:
    machine = Machine()
    outcome = tune.run(PLAN, machine.measure, machine.clock)
    rounds = machine.phases["verify"]
    names = {case.name for case in rounds[0]}
    assert {tune.TUNED, "nothing set", "pcie-ll-ring"} < names
    assert any(name.endswith(" everywhere") for name in names)
    assert all({case.name for case in gang} == names and len({case.round for case in gang}) == 1 for gang in rounds)
    assert len({tuple(case.name for case in gang) for gang in rounds[:6]}) > 3, "in turn, not always in one order"
    assert len(rounds) >= 20
    by_size = {row.bytes: row.found.rounds for row in outcome.rows}
    assert by_size[14336] == len(rounds)
    assert by_size[PLAN.sizes[-1]] == sum(number % tune.LARGE_EVERY == 1 for number in range(1, len(rounds) + 1))


def test_finals_measure_each_setting_only_where_it_may_be_the_best() -> None:
    machine = Machine()
    tune.run(PLAN, machine.measure, machine.clock)
    (first, *_), *_ = machine.phases["finals"]
    swept = machine.phases["sweep"][0][0]
    assert 0 < sum(len(trial.sizes) for trial in first.trials.values()) < len(swept.trials) * len(PLAN.sizes) / 3


def test_without_a_plugin_the_best_single_environment_is_chosen_by_weight() -> None:
    chosen: dict[str, str] = {}
    for phase in ("decode", "prefill"):
        machine = Machine()
        weights: dict[sizes.Phase, float] = {"decode": 0.0, "prefill": 0.0, phase: 1.0}  # type: ignore[misc]
        outcome = tune.run(replace(PLAN, plugin=None, weights=weights), machine.measure, machine.clock)
        assert outcome.chosen is None
        assert not any(case.trials or case.files for gang in machine.phases["finals"] for case in gang)
        chosen[phase] = outcome.environment.get("NCCL_PROTO", "NCCL chooses")
        assert outcome.how.startswith("single: ")
    assert chosen["decode"] != "Simple"
    assert chosen["prefill"] != "LL"


def test_a_phase_without_times_says_why() -> None:
    said = record.Diagnosis("first-collective-hang", "IOMMU: ...", "boot with iommu=pt", True, "trials")
    with pytest.raises(tune.NothingMeasuredError, match="sweep: first-collective-hang: boot with iommu=pt"):
        tune.run(PLAN, lambda *_: Record({}, (), (said,)))


@pytest.mark.parametrize(("low", "high", "holds"), [(0.9, 1.02, "yes"), (0.99, 1.05, "not shown"), (1.04, 1.06, "no")])
def test_a_claim_holds_only_where_the_interval_does(low: float, high: float, holds: str) -> None:
    assert tune.Row(14336, "other", compare.Paired((low + high) / 2, low, high, 30)).holds == holds


def test_gangs_stop_before_the_time_is_over_but_one_is_always_measured() -> None:
    now = [0.0]
    taken = []
    for gang in tune.paced(iter([[Case(str(number))] for number in range(20)]), 10.0, clock=lambda: now[0]):
        taken.append(gang)
        now[0] += 3
    assert len(taken) == 3
    assert len(list(tune.paced(iter([[Case("one")]]), 0.0))) == 1
