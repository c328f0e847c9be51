"""Keep or roll back: each engine of tests/hosts/verdicts.py gets the verdict that it deserves, for the right reason."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.hosts import verdict_table, verdicts
from tests.hosts.commands import Library
from tests.hosts.verdict_table import Case, Record
from tests.hosts.verdicts import SCENARIOS
from tests.testbed import TestbedError

WORKERS = 6
CASES = [(name, engine) for engine in verdicts.ENGINES for name in SCENARIOS if engine in SCENARIOS[name].engines]


class Rounds:
    """Plays rounds of scenarios on one host, several services at once, and the next while a test waits for its own."""

    def __init__(self, library: Library, count: int, record: Record):
        self.library, self.count, self.record = library, count, record
        self.pool, self.workers = ThreadPoolExecutor(WORKERS), queue.SimpleQueue[int]()
        for worker in range(WORKERS):
            self.workers.put(worker)
        self.futures: dict[tuple[Case, int], Future[str]] = {}

    def begin(self, case: Case, seed: int) -> Future[str]:
        """Have a round played, once; one that an earlier run has found right is not."""
        if (case, seed) not in self.futures:
            self.futures[case, seed] = self.pool.submit(self._play, case, seed)
        return self.futures[case, seed]

    def wrong(self, case: Case) -> list[str]:
        """What was wrong in the rounds of a case."""
        rounds = [self.begin(case, seed) for seed in range(self.count)]
        return [found for found in (one.result() for one in rounds) if found]

    def right(self, *names: str) -> bool:
        """True when every engine of these scenarios got the right verdict in every round."""
        wrong = {(name, engine): self.wrong((name, engine)) for name in names for engine in SCENARIOS[name].engines}
        return not any(wrong.values()) or pytest.fail(str(wrong))

    def _play(self, case: Case, seed: int) -> str:
        if self.record.right(case, seed):
            return ""
        worker, began = self.workers.get(), time.time()
        try:
            wrong = verdicts.play(self.library, case[1], SCENARIOS[case[0]], seed, worker)
        except (AssertionError, TestbedError) as error:
            wrong = f"no verdict: {error}"
        finally:
            self.workers.put(worker)
        self.record.add(case, seed, began, wrong)
        return wrong


@pytest.fixture(scope="module")
def rounds(testbed: Any, simulator: Any, request: pytest.FixtureRequest) -> Iterator[Rounds]:
    chosen = {item.callspec.params["case"] for item in request.session.items if hasattr(item, "callspec")
              and "case" in item.callspec.params and "rounds" in item.fixturenames}  # fmt: skip
    count, path = request.config.getoption("--verdict-rounds"), request.config.getoption("--verdict-record")
    host = testbed.boot("verdicts", prepare=simulator)
    found = Rounds(Library(host), count, Record(path))
    for seed in range(count):
        for case in CASES:
            if case in chosen:
                found.begin(case, seed)
    yield found
    found.pool.shutdown(cancel_futures=True)
    testbed.destroy(host)


@pytest.mark.parametrize("case", CASES, ids=["-".join(case) for case in CASES])
def test_the_verdict_is_right(rounds: Rounds, case: Case):
    wrong = rounds.wrong(case)
    assert not wrong, f"{len(wrong)} of {rounds.count}: {wrong}"


def test_the_record_goes_on_where_a_run_was_interrupted_and_the_page_counts_what_was_wrong(tmp_path: Path):
    record = Record(tmp_path / "record.jsonl")
    for seed in range(3):
        record.add(("good", "sglang"), seed, 0.0, "rolled_back: too slow" if seed == 1 else "")
    later = Record(tmp_path / "record.jsonl")
    assert [later.right(("good", "sglang"), seed) for seed in range(4)] == [True, False, True, False]
    assert not later.right(("good", "vllm"), 0)
    page = verdict_table.markdown(later.rounds)
    assert "| behaves | to be kept | 2 / 3 | not run |" in page
    assert "3 rounds, 1 wrong verdicts. Played from 1970-01-01T00:00:00Z" in page
    assert "- good, sglang, 1970-01-01T00:00:00Z: rolled_back: too slow" in page
    assert "| 401 without the key, which is declared | to be kept | does not apply | not run |" in page


def test_rounds_of_other_code_are_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing follows from them for what is there now."""
    for name in (*verdict_table.JUDGED[:-1], "tests/hosts"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / verdict_table.JUDGED[-1]).write_text("SCENARIOS = {}")
    before = verdict_table.code(tmp_path)
    (tmp_path / "plugins/module_utils/host/load.py").write_text("PAUSE_SECONDS = 0")
    assert verdict_table.code(tmp_path) != before
    record = Record(tmp_path / "record.jsonl")
    record.add(("good", "sglang"), 0, 0.0, "")
    monkeypatch.setattr(verdict_table, "code", lambda: "other")
    assert Record(tmp_path / "record.jsonl").rounds == []


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
