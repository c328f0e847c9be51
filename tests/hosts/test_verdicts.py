"""Keep or roll back: each engine of tests/hosts/verdicts.py gets the verdict that it deserves, for the right reason."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import verdicts
from tests.hosts.commands import Library
from tests.hosts.verdicts import SCENARIOS

WORKERS = 4
ROUNDS = pytest.StashKey[dict[tuple[str, str], tuple[int, int]]]()
CASES = [(name, engine) for engine in verdicts.ENGINES for name in SCENARIOS if engine in SCENARIOS[name].engines]


class Rounds:
    """Plays scenarios on one host an engine, several services at once, and the next while a test waits for its own."""

    def __init__(self, boot: Callable[[str], Library], rounds: int, wanted: list[tuple[str, str]]):
        self.rounds, self.pool, self.workers = rounds, ThreadPoolExecutor(WORKERS), queue.SimpleQueue[int]()
        for worker in range(WORKERS):
            self.workers.put(worker)
        self.hosts = {engine: boot(engine) for engine in dict.fromkeys(engine for _, engine in wanted)}
        self.futures: dict[tuple[str, str], list[Future[str]]] = {
            case: [self.pool.submit(self._play, *case, seed) for seed in range(rounds)] for case in wanted
        }

    def _play(self, name: str, engine: str, seed: int) -> str:
        worker = self.workers.get()
        try:
            return verdicts.play(self.hosts[engine], engine, SCENARIOS[name], seed, worker)
        finally:
            self.workers.put(worker)


@pytest.fixture(scope="module")
def rounds(testbed: Any, simulator: Any, request: pytest.FixtureRequest) -> Iterator[Rounds]:
    chosen = {item.callspec.params["case"] for item in request.session.items if "rounds" in item.fixturenames}
    count = request.config.getoption("--verdict-rounds")
    booted = []

    def boot(engine: str) -> Library:
        booted.append(testbed.boot(f"verdict-{engine}", prepare=simulator))
        return Library(booted[-1])

    found = Rounds(boot, count, [case for case in CASES if case in chosen])
    yield found
    found.pool.shutdown(cancel_futures=True)
    for host in booted:
        testbed.destroy(host)


@pytest.mark.parametrize("case", CASES, ids=["-".join(case) for case in CASES])
def test_the_verdict_is_right(rounds: Rounds, case: tuple[str, str], record_property: Callable[[str, object], None]):
    outcomes = [future.result() for future in rounds.futures[case]]
    wrong = [outcome for outcome in outcomes if outcome]
    record_property("verdicts", (*case, len(outcomes) - len(wrong), len(outcomes)))
    assert not wrong, f"{len(wrong)} of {len(outcomes)}: {wrong}"


def test_the_table_counts_what_was_wrong(tmp_path: Path):
    page = verdicts.markdown({("good", "sglang"): (19, 20), ("good", "vllm"): (20, 20)})
    assert "| behaves | to be kept | 19 / 20 | 20 / 20 |" in page
    assert "40 deploys, 1 wrong verdicts." in page
    assert "| 401 without the key | to be kept | does not apply | not run |" in page
