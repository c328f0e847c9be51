"""The probe on a real HTTP server, and what its figures may be taken to say."""

from __future__ import annotations

import contextlib
import random
import statistics
import threading
import time
from types import SimpleNamespace

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host.errors import HostError
from ansible_collections.servewright.llm.plugins.module_utils.host.gates import performance as gate
from ansible_collections.servewright.llm.plugins.module_utils.host.http import Client, HttpError
from ansible_collections.servewright.llm.plugins.module_utils.host.performance import (
    baselines,
    bench,
    judge,
    measure,
    noise,
    stream,
    words,
)
from tests.simulator.install import install
from tests.unit.host.test_releases import rendered
from tests.unit.test_simulator import Engine

SETTINGS = {"floors": {}, "compare": True, "tolerance": 0.065, "start_spread": 0.07}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("root")
    install(path)
    return path


@pytest.fixture
def start(folder):
    """Starts a simulated engine and gives a client of it."""
    running = []

    def start(name="vllm", **environment):
        running.append(Engine(folder, name, **environment).ready())
        return Client("127.0.0.1", running[-1].port)

    yield start
    for engine in running:
        engine.destroy()


def declared(**performance):
    settings = {"tokens": 16, "long_prompt": 600, **performance}
    verify = {"performance": settings, "request_timeout": 10}
    return rendered(engine="vllm", version="0.32.0", model={"path": "/m", "served_name": "kimi"}, verify=verify)


def meter(client, **performance):
    return measure.Meter(declared(**performance), client, 5, seed=1)


@contextlib.contextmanager
def others(client, seconds=60.0, tokens=8, pause=0.05):
    """Somebody else asks the server for so many seconds, with a pause after each answer."""
    over, end = threading.Event(), time.monotonic() + seconds

    def ask():
        while time.monotonic() < end and not over.wait(pause):
            stream.complete(client, "/v1/completions", "kimi", "a b c", tokens, 60)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_the_pace_of_a_stream_is_measured_by_the_tokens_that_the_engine_counts(start, name):
    """At four times the pace several tokens are in one piece."""
    client = start(name, SIM_SPEED="4")
    answer = stream.complete(client, "/v1/completions", "kimi", "a b c", 400, 20)
    assert answer.tokens == 400
    assert len(answer.gaps) < 380
    assert answer.decode == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SIM_TRUNCATE_STREAM": "1"}, "the answer broke off"),
        ({"SIM_EMPTY_ANSWER": "1"}, "the answer broke off: 0 of 64 tokens, finish reason stop"),
        ({"SIM_POST_HANGS": "1"}, "no whole answer in time"),
        ({"SIM_SPEED": "0.02"}, "no whole answer in time"),  # it streams, but not to its end
    ],
)
def test_an_answer_that_is_not_whole_is_none(start, environment, message):
    client = start(**environment)
    with pytest.raises(HttpError, match=message):
        stream.complete(client, "/v1/completions", "kimi", "a b c", 64, 2)


def test_a_refusal_is_told_with_its_status(start):
    with pytest.raises(HttpError, match=r"status 404.*does not exist") as caught:
        stream.complete(start(), "/v1/completions", "other", "a b c", 8, 5)
    assert caught.value.status == 404


def test_a_run_measures_the_declared_lengths_and_no_two_prompts_begin_alike(start):
    found = meter(start())
    found.warm_up()
    values = found.single_stream(3, 5)
    assert 3 <= len(values["decode"]) <= 5
    assert found.prompt_tokens["long"] == pytest.approx(600, rel=0.25)
    assert statistics.median(values["decode"]) == pytest.approx(250, rel=0.15)
    prompts = [words.text(random.Random(seed), 8) for seed in range(200)]
    assert len({" ".join(prompt.split()[:4]) for prompt in prompts}) == 200


class Server:
    """Instead of a server: completions have the outcomes of a list, the load is told in full."""

    def __init__(self, *outcomes):
        self.outcomes, self.tokens = iter(outcomes), 0

    def json(self, method, path):
        return {"data": [{"max_model_len": 8192}]}

    def text(self, path, timeout):
        return f"vllm:num_requests_running 0\nvllm:generation_tokens_total {self.tokens}\n"

    def complete(self, http, path, model, prompt, tokens, timeout):
        outcome = next(self.outcomes, "answered")
        if outcome != "answered":
            raise outcome
        self.tokens += 30 + tokens
        return stream.Streamed(0.1, 0.2, (0.1 / (tokens - 1),) * (tokens - 1) if tokens > 1 else (), tokens, 30)


@pytest.fixture
def quick(monkeypatch):
    """Gives a meter of a Server whose pauses take no time."""
    monkeypatch.setattr(measure.load, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(measure, "LOOK_SECONDS", 0.0)

    def quick(*outcomes):
        server = Server(*outcomes)
        monkeypatch.setattr(measure.stream, "complete", server.complete)
        return meter(server)

    return quick


def test_one_answer_that_does_not_come_is_measured_again_and_several_in_a_row_are_a_failure(quick):
    """A needless rollback is an outage: a pause of a loaded host is no fault of the release."""
    late = HttpError("late")
    found = quick(late, late, *["answered"] * 2, late, late)
    found.warm_up()
    assert len(found.single_stream(3, 3)["decode"]) == 3
    assert found.disturbed == 1
    with pytest.raises(HttpError, match=r"late \(3 times in a row\)"):
        quick(late, late, late).warm_up()
    found = quick(*["answered"] * 2, late, late, late)
    found.warm_up()
    with pytest.raises(HttpError, match=r"late \(3 times in a row\)"):
        found.streams(1)


def test_an_engine_that_ended_is_not_waited_for(quick):
    def ended():
        raise HostError("the unit restarted")

    found = quick(*["answered"] * 2, *[HttpError("busy", 503)] * 9)
    found.warm_up()
    found.check = ended
    with pytest.raises(HostError, match="the unit restarted"):
        found.single_stream(3, 3)
    with pytest.raises(HostError, match="the unit restarted"):
        found.streams(4)


@pytest.mark.parametrize("after", [0.0, 0.6, 1.2])
def test_a_server_that_is_busy_for_a_moment_is_waited_for_and_its_speed_is_what_it_is_otherwise(start, after):
    found = meter(start(SIM_BUSY_AFTER=str(after), SIM_BUSY_503="1.5"))
    cold = found.warm_up()
    values = found.single_stream(8, 8)
    assert statistics.median(values["decode"]) == pytest.approx(250, rel=0.15)
    assert max(*values["ttft"], *values["ttft_long"], *cold.values()) < 0.5
    assert found.told


def test_streams_at_once_that_met_a_busy_server_are_measured_again(start):
    client = start(SIM_BUSY_AFTER="1", SIM_BUSY_503="1")
    found = meter(client, concurrency=[4])
    found.warm_up()
    time.sleep(0.7)
    assert min(found.throughput(4, 3)) > 400
    assert found.disturbed


def test_short_requests_of_others_between_two_looks_are_noticed(start, monkeypatch):
    """No look at what runs sees them, and an answer beside them is not as fast as one alone."""
    client = start()
    found = meter(client)
    monkeypatch.setattr(found, "others", lambda: 0)
    found.warm_up()
    with others(client, seconds=1.5):
        values = found.single_stream(3, 5)
    assert found.disturbed >= 2
    assert len(values["decode"]) >= 3
    with others(client), pytest.raises(measure.Busy):
        found.single_stream(5, 5)


def test_what_was_undisturbed_before_others_came_is_enough_from_three_repeats_on(quick, monkeypatch):
    found = quick()
    found.warm_up()
    found.end = time.monotonic() + 0.3
    monkeypatch.setattr(found, "others", lambda: int(len(found.own) > 2 + 2 * 3))
    assert len(found.single_stream(20, 20)["decode"]) == 3


def test_what_is_counted_of_an_answer_is_what_its_usage_says(start):
    found = meter(start())
    found.warm_up()
    found.single_stream(5, 5)
    found.streams(4)
    assert (found.told, found.disturbed, found.most) == (True, 0, 0)


def judged_gate(client, **performance):
    """The gate beside a baseline that no server keeps."""
    release = declared(seconds=3, **performance)
    run = SimpleNamespace(
        release=release, number=4, http=client, same_process=lambda: None, returning=False, state={"InvocationID": "i"}
    )
    return gate.gate(run)


@pytest.mark.parametrize(
    ("endpoints", "floors", "verdict", "words"),
    [
        ("old", {}, "failed", "worse than 9999.0 tok/s of release 3"),
        ("none", {}, "passed", gate.UNTOLD),
        ("none", {"decode": 9999}, "failed", gate.UNTOLD),
    ],
)
def test_where_nothing_tells_of_others_only_a_declared_floor_is_held_against_a_release(
    start, root, monkeypatch, endpoints, floors, verdict, words
):
    monkeypatch.setattr(baselines, "comparable", lambda release, number: (baseline(9999.0), []))
    found, message, evidence = judged_gate(start(SIM_INFO_ENDPOINT=endpoints), floors=floors)
    assert (found, words in message) == (verdict, True)
    if found == "passed":  # nor is it a baseline for others
        baselines.keep(declared(), 4, [{"id": "performance", "verdict": found, "evidence": evidence}])
        assert baselines.all_of("tiny") == []


def test_a_bench_goes_on_beside_others_that_come_later_and_its_record_says_so(start, monkeypatch):
    monkeypatch.setattr(measure, "BESIDE_SECONDS", 0.2)
    monkeypatch.setattr(bench, "MOST_REPEATS", bench.REPEATS)
    client = start()
    with others(client, tokens=1500, pause=1.0):
        record = bench.run(declared(), 4, "i", client, [1, 2], 20)
    assert record["others"] == 1
    assert [level["concurrency"] for level in record["curve"]] == [1, 2]
    assert len(record["figures"]["decode"]["repeats"]) == bench.REPEATS


def test_the_long_prompt_fits_the_context(start):
    """The server's context is 8192 tokens, which it reports; a prompt beyond it would be refused."""
    found = meter(start(), long_prompt=100000)
    assert found.warm_up()["long"] > 0
    assert 4000 < found.prompt_tokens["long"] < 8192


def test_streams_at_once_are_all_counted(start):
    found = meter(start())
    found.warm_up()
    result = found.streams(8)
    assert (result["requests"], result["concurrency"]) == (24, 8)
    alone = found.streams(1)
    assert result["throughput"] > 4 * alone["throughput"]


def test_the_spread_of_starts_does_not_take_one_change_of_speed_for_noise():
    steady = [100.0, 101.0, 100.0, 99.0, 100.0]
    spread, freedom = noise.spread_of_starts([*steady, *(130.0 * value / 100 for value in steady)])
    assert freedom == 6
    assert spread < statistics.stdev([*steady, *(130.0 * value / 100 for value in steady)]) / 100


@pytest.mark.parametrize(
    ("starts", "allowed"),
    [
        ([100.0], 0.206),  # nothing is known of this host's starts: what was recorded on another is reckoned with
        ([100.0, 101.0], 0.206),
        ([100.0, 101.0, 100.0, 101.0, 100.0], 0.065),  # they agree: the declared tolerance holds
        ([100.0, 112.0, 95.0, 108.0, 92.0], 0.28),  # they do not
    ],
)
def test_how_much_a_restart_explains_follows_from_the_starts_of_the_host(starts, allowed):
    assert noise.allowed(starts, 1, 0.065, 0.07) == pytest.approx(allowed, abs=0.03)


def baseline(*decodes):
    starts = [{"figures": {"decode": value, "ttft_long": 1.0}} for value in decodes]
    return {"release": 3, "reference": starts[-1:], "starts": starts}


@pytest.mark.parametrize(("seconds", "passed"), [(1.03, True), (1.16, False)])
def test_the_first_token_of_a_long_prompt_says_more_after_one_start(seconds, passed):
    """It differs less over starts than decode, for which one start would explain more than this."""
    bounds = judge.bounds({**SETTINGS, "start_spread": 0.07}, baseline(100.0))
    assert judge.judged("ttft_long", seconds, bounds["ttft_long"])["passed"] is passed
    assert judge.judged("decode", 100.0 / seconds, bounds["decode"])["passed"]


@pytest.mark.parametrize(
    ("settings", "value", "passed"),
    [
        ({}, 80.0, True),
        ({}, 60.0, False),
        ({"start_spread": 0.01}, 96.0, True),
        ({"start_spread": 0.01}, 90.0, False),
        ({"start_spread": 0.01, "tolerance": 0.15}, 90.0, True),
        ({"floors": {"decode": 50}}, 60.0, True),  # a floor replaces the comparison
        ({"floors": {"decode": 100}}, 99.0, False),
    ],
)
def test_a_figure_is_judged_by_its_floor_or_by_the_baseline(settings, value, passed):
    bound = judge.bounds({**SETTINGS, **settings}, baseline(100.0))["decode"]
    assert judge.judged("decode", value, bound)["passed"] is passed


def test_nothing_is_compared_where_a_slower_release_is_accepted():
    assert judge.bounds({**SETTINGS, "compare": False}, baseline(100.0)) == {}


def test_a_longer_time_is_a_drop_and_a_few_milliseconds_are_none():
    bound = judge.bounds({**SETTINGS, "start_spread": 0.0}, baseline(100.0))["ttft_long"]
    assert judge.judged("ttft_long", 2.0, bound)["drop"] == pytest.approx(0.5)
    assert not judge.judged("ttft_long", 1.2, bound)["passed"]
    starts = [{"figures": {"ttft_long": 0.03}}]
    quick = {"release": 3, "reference": starts, "starts": starts}
    bound = judge.bounds({**SETTINGS, "start_spread": 0.0}, quick)["ttft_long"]
    assert judge.judged("ttft_long", 0.045, bound)["passed"]


def test_a_sentence_says_how_far_and_against_what():
    bound = judge.bounds(SETTINGS, baseline(100.0))["decode"]
    assert judge.sentence("decode", judge.judged("decode", 60.0, bound)) == (
        "single stream 60.0 tok/s, 40 % worse than 100.0 tok/s of release 3 (up to 21 % may be noise)"
    )
