"""What the watch decides: a history and one more look give the next history."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import systemd, timers
from ansible_collections.servewright.llm.plugins.module_utils.host.http import HttpError
from ansible_collections.servewright.llm.plugins.module_utils.host.journal import Journal
from ansible_collections.servewright.llm.plugins.module_utils.host.load import Load, WorkingError, once
from ansible_collections.servewright.llm.plugins.module_utils.host.metrics import text
from ansible_collections.servewright.llm.plugins.module_utils.host.watch import judge, metrics, run
from ansible_collections.servewright.llm.plugins.module_utils.host.watch.look import not_running, seen
from ansible_collections.servewright.llm.plugins.module_utils.host.watch.timer import units

DECLARED = {"failures": 3, "busy_timeout": 300}
LOOKS = {
    "ok": seen(judge.HEALTHY, invocation="first"),
    "works": seen(judge.BUSY, "no answer", "first", moved=True),
    "503": seen(judge.BUSY, "status 503", "first"),
    "fails": seen(judge.FAILING, "no answer", "first"),
    "loads": seen(judge.LOADING, "refused", "second"),
    "held": seen(judge.HELD, "a deploy"),
    "stopped": seen(judge.STOPPED, "the unit is inactive"),
}


def after(looks, seconds=60.0, known=None):
    """The history after looks, one every so many seconds, the first at 0."""
    known = known or {}
    for number, look in enumerate(looks.split()):
        known = judge.judge(known, LOOKS[look], DECLARED, number * seconds)
    return known


@pytest.mark.parametrize(
    ("looks", "verdict", "failures", "since"),
    [
        ("ok", "healthy", 0, 0),
        ("ok ok ok", "healthy", 0, 0),
        ("ok fails", "failing", 1, 60),
        ("ok fails fails", "failing", 2, 60),
        ("ok fails fails fails", "dead", 3, 180),
        ("fails fails fails fails fails", "dead", 5, 120),
        ("fails fails ok fails fails", "failing", 2, 180),
        ("fails fails works fails fails", "failing", 2, 180),
        ("ok works works works works works works works works", "busy", 0, 60),
        ("fails fails fails works", "busy", 0, 180),
        ("ok fails fails held held", "held", 0, 180),
        ("ok fails fails stopped stopped stopped stopped", "stopped", 0, 180),
        ("ok fails fails loads loads loads loads", "loading", 0, 180),
        # Who only says that it is busy is believed for verify.busy_timeout.
        ("ok 503 503 503 503 503 503", "busy", 0, 60),
        ("ok 503 503 503 503 503 503 503", "failing", 1, 420),
        ("ok 503 503 503 503 503 503 503 503 503", "dead", 3, 540),
        ("fails 503 503", "dead", 3, 120),
        ("503 503 works 503", "busy", 0, 0),
    ],
)
def test_a_verdict_follows_from_the_looks_in_a_row(looks, verdict, failures, since):
    known = after(looks)
    assert (known["verdict"], known["failures"], known["since"]) == (verdict, failures, since)


def test_a_look_by_hand_at_what_is_not_watched_never_finds_it_dead():
    known = {"failures": 10, "verdict": judge.FAILING, "since": 0}
    declared = {"failures": math.inf, "busy_timeout": math.inf}
    assert judge.judge(known, LOOKS["fails"], declared, 1)["verdict"] == judge.FAILING


@pytest.mark.parametrize("jump", [0, 86400, -86400])
def test_a_clock_that_is_set_while_a_server_is_busy_changes_no_verdict(root, monkeypatch, jump):
    """It is busy for as long as it is, not for as long as the time of day says."""
    clock = SimpleNamespace(now=5000.0, offset=1.7e9)
    times = SimpleNamespace(time=lambda: clock.now + clock.offset, monotonic=lambda: clock.now)
    looks = iter(["ok", *["503"] * 14])
    monkeypatch.setattr(run, "time", times)
    monkeypatch.setattr(run, "declared", lambda service: {**DECLARED, "restart": False, "metrics_folder": None})
    monkeypatch.setattr(run, "look", lambda service, known: LOOKS[next(looks)])
    found = []
    for _look in range(15):
        found += run.run("kimi")
        clock.now += 30
        clock.offset = 1.7e9 + jump
    assert [line.partition(": ")[2].partition(":")[0] for line in found] == [
        "healthy",
        "busy, after 30 s healthy",
        "failing, after 330 s busy",
        "dead, 3 in a row, after 60 s failing",
    ]


def test_which_process_has_answered_is_kept_until_another_does():
    assert after("ok fails held loads")["served"] == "first"
    assert judge.judge(after("ok"), seen(judge.HEALTHY, invocation="second"), DECLARED, 9)["served"] == "second"
    assert after("fails")["served"] is None


@pytest.mark.parametrize(
    ("restarted", "well", "now", "words"),
    [
        (None, True, 0, ""),
        (1000, False, 999999, "did not help"),  # what fails again is not tried for ever
        (1000, True, 1000 + 600, "it was restarted 10 min ago"),
        (1000, True, 1000 + 3601, ""),
    ],
)
def test_a_restart_is_not_repeated_in_vain(restarted, well, now, words):
    against = judge.against_restart({"restarted": restarted, "well": well}, now)
    assert words in against if words else against == ""


def test_an_answer_after_a_restart_allows_the_next_one():
    known = after("fails fails fails", known={"restarted": 5, "well": False, "note": "restarting"})
    assert not known["well"]
    assert after("fails", known=known)["note"] == "restarting"
    known = after("ok fails fails", known=known)
    assert (known["restarted"], known["well"], known["note"]) == (5, True, "")


def test_the_journal_is_told_of_changes_only():
    first = after("ok")
    assert list(run.lines("kimi", {}, first, 0)) == ["<6>kimi: healthy"]
    assert list(run.lines("kimi", first, after("ok ok"), 60)) == []
    assert list(run.lines("kimi", after("ok ok fails fails"), after("ok ok fails fails fails"), 240)) == [
        "<4>kimi: dead, 3 in a row, after 120 s failing: no answer"
    ]
    dead = {**after("fails fails fails"), "note": "not restarted: busy"}
    assert list(run.lines("kimi", after("fails fails fails"), dead, 180)) == ["<4>kimi: not restarted: busy"]
    assert list(run.lines("kimi", dead, dead, 240)) == []


def test_metrics_have_one_verdict():
    lines = text(metrics.rows("kimi", after("fails fails fails"), 1700000000.4)).splitlines()
    verdict = 'servewright_watch_verdict{service="kimi",verdict="dead"} 1'
    assert [line for line in lines if line.endswith(" 1")] == [verdict]
    assert 'servewright_watch_failures{service="kimi"} 3' in lines
    assert 'servewright_watch_last_run_timestamp_seconds{service="kimi"} 1700000000' in lines


class Server:
    """Answers to GET /metrics in turn; a completion fails."""

    def __init__(self, *tokens):
        self.tokens = list(tokens)

    def text(self, path, timeout):
        found = self.tokens.pop(0)
        if found is None:
            raise HttpError("GET /metrics: no answer")
        return f"tokens_total {found}\nrunning 2\n"

    def complete(self):
        raise HttpError(f"POST: status {self.status}" if self.status else "POST: no answer", self.status)

    status = 0


@pytest.mark.parametrize(
    ("tokens", "status", "moved"),
    [
        ((100, 140), 0, True),
        ((100, 100), 0, None),
        ((None, None), 0, None),
        ((100, None), 0, None),
        ((100, 100), 503, False),
        ((100, 100), 429, False),
        ((100, 101), 503, True),
        ((100, 100), 500, None),
    ],
)
def test_a_server_that_does_not_answer_works_when_its_counters_move_or_it_says_so(tokens, status, moved):
    server = Server(*tokens)
    server.status = status
    release = {"metrics": {"tokens": ["tokens_total"], "running": ["running"]}}
    with pytest.raises(HttpError) as failed:
        once(release, server, server.complete)
    assert getattr(failed.value, "moved", None) == moved
    assert isinstance(failed.value, WorkingError) == (moved is not None)
    assert Load({"tokens": 1}).moved(Load({})) is False


def test_a_release_without_a_watch_has_no_timer():
    assert set(units({"service": "kimi"}).values()) == {None}
    assert set(units({"service": "kimi", "watch": None}).values()) == {None}
    declared = units({"service": "kimi", "watch": {"every": 30.0}})
    assert "OnUnitInactiveSec=30\n" in declared["servewright-watch-kimi.timer"]
    assert "host.pyz watch --service kimi\n" in declared["servewright-watch-kimi.service"]


def test_what_differs_of_a_timer_is_named(root):
    wanted = units({"service": "kimi", "watch": {"every": 30.0}})
    assert timers.differing(wanted) == [f"servewright-watch-kimi.{kind} (missing)" for kind in ("service", "timer")]
    (root / "units").mkdir()
    for name, content in wanted.items():
        (root / "units" / name).write_text(content + "# mine\n")
    assert timers.differing(wanted)[0] == "servewright-watch-kimi.service (edited)"
    assert timers.differing(units({"service": "kimi"}))[1] == "servewright-watch-kimi.timer (not declared)"


@pytest.mark.parametrize(
    ("state", "job", "result", "code", "last", "verdict"),
    [
        ("inactive", "", "success", 1, "committed", judge.STOPPED),
        ("failed", "", "timeout", 2, "committed", judge.STOPPED),  # killed, as it did not end when asked to
        ("failed", "", "timeout", 0, "committed", judge.FAILING),  # its start took too long
        ("failed", "", "exit-code", 1, "committed", judge.FAILING),
        ("inactive", "", "success", 1, "rollback_failed", judge.FAILING),  # a transaction left it so
        ("activating", "start", "exit-code", 1, "committed", judge.LOADING),
        ("deactivating", "stop", "success", 0, "committed", judge.STOPPED),
        ("deactivating", "restart", "success", 0, "committed", judge.STOPPED),
        ("deactivating", "start", "exit-code", 1, "committed", judge.LOADING),  # a check before its start failed
        ("deactivating", "", "exit-code", 1, "committed", judge.LOADING),  # ended by itself
    ],
)
def test_a_service_that_does_not_run_was_stopped_or_has_failed(
    root, monkeypatch, state, job, result, code, last, verdict
):
    Journal.new("kimi").step(last)
    jobs = f"91 kimi.service {job} running\n" if job else ""
    monkeypatch.setattr(systemd, "run", lambda argv: SimpleNamespace(stdout=jobs))
    shown = {"ActiveState": state, "SubState": "x", "Result": result, "ExecMainCode": code, "ExecMainStatus": 9}
    assert not_running("kimi", shown)[0] == verdict
