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

    def __init__(self, boot: Callable[[str], Library], rounds: int):
        self.boot, self.rounds, self.hosts = boot, rounds, dict[str, Library]()
        self.pool, self.workers = ThreadPoolExecutor(WORKERS), queue.SimpleQueue[int]()
        for worker in range(WORKERS):
            self.workers.put(worker)
        self.futures: dict[tuple[str, str], list[Future[str]]] = {}

    def begin(self, name: str, engine: str) -> list[Future[str]]:
        """Have all rounds of a scenario played, once."""
        if engine not in self.hosts:
            self.hosts[engine] = self.boot(engine)
        if (name, engine) not in self.futures:
            self.futures[name, engine] = [
                self.pool.submit(self._play, name, engine, seed) for seed in range(self.rounds)
            ]
        return self.futures[name, engine]

    def outcomes(self, name: str, engine: str) -> list[str]:
        """What was wrong in each round, or ''."""
        return [future.result() for future in self.begin(name, engine)]

    def right(self, *names: str) -> bool:
        """True when every engine of these scenarios got the right verdict in every round."""
        cases = [(name, engine) for name in names for engine in SCENARIOS[name].engines]
        wrong = {case: [outcome for outcome in self.outcomes(*case) if outcome] for case in cases}
        return not any(wrong.values()) or pytest.fail(str(wrong))

    def _play(self, name: str, engine: str, seed: int) -> str:
        worker = self.workers.get()
        try:
            return verdicts.play(self.hosts[engine], engine, SCENARIOS[name], seed, worker)
        finally:
            self.workers.put(worker)


@pytest.fixture(scope="module")
def rounds(testbed: Any, simulator: Any, request: pytest.FixtureRequest) -> Iterator[Rounds]:
    chosen = {item.callspec.params["case"] for item in request.session.items if hasattr(item, "callspec")
              and "case" in item.callspec.params and "rounds" in item.fixturenames}  # fmt: skip
    count = request.config.getoption("--verdict-rounds")
    booted = []

    def boot(engine: str) -> Library:
        booted.append(testbed.boot(f"verdict-{engine}", prepare=simulator))
        return Library(booted[-1])

    found = Rounds(boot, count)
    for case in CASES:
        if case in chosen:
            found.begin(*case)
    yield found
    found.pool.shutdown(cancel_futures=True)
    for host in booted:
        testbed.destroy(host)


@pytest.mark.parametrize("case", CASES, ids=["-".join(case) for case in CASES])
def test_the_verdict_is_right(rounds: Rounds, case: tuple[str, str], record_property: Callable[[str, object], None]):
    outcomes = rounds.outcomes(*case)
    wrong = [outcome for outcome in outcomes if outcome]
    record_property("verdicts", (*case, len(outcomes) - len(wrong), len(outcomes)))
    assert not wrong, f"{len(wrong)} of {len(outcomes)}: {wrong}"


def test_the_table_counts_what_was_wrong(tmp_path: Path):
    page = verdicts.markdown({("good", "sglang"): (19, 20), ("good", "vllm"): (20, 20)})
    assert "| behaves | to be kept | 19 / 20 | 20 / 20 |" in page
    assert "40 deploys, 1 wrong verdicts." in page
    assert "| 401 without the key | to be kept | does not apply | not run |" in page


@pytest.mark.failure("2.7")
def test_2_7_a_server_that_hangs_after_some_requests_does_not_pass(rounds: Rounds):
    assert rounds.right("hangs_later")


@pytest.mark.failure("4.6")
def test_4_6_a_fall_back_to_another_attention_backend_is_rolled_back(rounds: Rounds):
    assert rounds.right("backend")


@pytest.mark.failure("4.8")
def test_4_8_info_endpoints_under_old_new_or_no_names_are_no_fault(rounds: Rounds):
    assert rounds.right("old_names", "new_names", "no_names")


@pytest.mark.failure("4.11")
def test_4_11_health_alone_is_not_believed(rounds: Rounds):
    assert rounds.right("post_hangs")


@pytest.mark.failure("4.12")
def test_4_12_health_generate_is_not_believed_either(rounds: Rounds):
    assert rounds.right("lying_health")


@pytest.mark.failure("4.14")
def test_4_14_health_generate_may_be_missing(rounds: Rounds):
    assert rounds.right("no_health_generate")


@pytest.mark.failure("5.2")
def test_5_2_the_effective_request_limit_is_read_back(rounds: Rounds):
    assert rounds.right("limit")


@pytest.mark.failure("5.7")
def test_5_7_a_draft_that_does_not_fit_is_rolled_back_and_one_that_fits_is_kept(rounds: Rounds):
    assert rounds.right("bad_draft", "draft")


@pytest.mark.failure("5.9")
def test_5_9_a_shape_error_at_the_start_is_rolled_back_with_its_cause(rounds: Rounds):
    assert rounds.right("dies")


@pytest.mark.failure("9.1")
def test_9_1_a_frozen_engine_with_a_200_on_health_is_rolled_back(rounds: Rounds):
    assert rounds.right("post_hangs")


@pytest.mark.failure("9.4")
def test_9_4_a_server_that_answers_to_any_name_is_judged_by_what_it_serves(rounds: Rounds):
    assert rounds.right("any_model", "wrong_model")


@pytest.mark.failure("9.6")
def test_9_6_a_slow_first_answer_is_no_fault(rounds: Rounds):
    assert rounds.right("slow_first")


@pytest.mark.failure("4.10")
def test_4_10_server_info_without_ranks_is_no_fault(rounds: Rounds):
    assert rounds.right("odd_info")
