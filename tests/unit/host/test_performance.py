"""The probe on a real HTTP server, and what its figures may be taken to say."""

from __future__ import annotations

import random
import statistics

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host.http import Client, HttpError
from ansible_collections.servewright.llm.plugins.module_utils.host.performance import (
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


def meter(client, **performance):
    settings = {"tokens": 16, "long_prompt": 600, **performance}
    release = rendered(
        model={"path": "/m", "served_name": "kimi"}, verify={"performance": settings, "request_timeout": 10}
    )
    return measure.Meter(release, client, 5, seed=1)


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


def test_one_answer_that_does_not_come_is_measured_again_and_several_in_a_row_are_a_failure(monkeypatch):
    """A needless rollback is an outage: a pause of a loaded host is no fault of the release."""
    outcomes = iter([HttpError("late"), HttpError("late"), "measured", *[HttpError("late")] * 3])

    def action():
        outcome = next(outcomes)
        if isinstance(outcome, HttpError):
            raise outcome
        return outcome

    found = meter(None)
    monkeypatch.setattr(found, "others", lambda: 0)
    assert found._undisturbed(action) == "measured"
    with pytest.raises(HttpError, match="late"):
        found._undisturbed(action)


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
