"""Parts of the transaction that no test host can be brought to do."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import (
    journal,
    leftovers,
    ready,
    releases,
    systemd,
    transaction,
)
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import HostError, StepError
from tests.unit.host.test_releases import rendered


@pytest.fixture
def commands(monkeypatch):
    """Every program that would have been run; systemd answers that the unit is active."""
    ran = []
    shown = {"LoadState": "loaded", "ActiveState": "active", "ControlGroup": "/x", "InvocationID": "i", "MainPID": 1}
    shown["User"] = "u"
    shown |= {"ExecMainCode": 0, "ExecMainStatus": 0, "Result": "success"}
    monkeypatch.setattr(systemd, "run", lambda argv, **options: ran.append(argv))
    monkeypatch.setattr(systemd, "show", lambda unit: shown)
    monkeypatch.setattr(systemd, "log", lambda *arguments: [])
    return ran


def test_nothing_is_started_on_top_of_processes_that_outlive_sigkill(root, commands, monkeypatch):
    """A process in uninterruptible sleep holds the GPUs until a reboot."""
    for number in (1, 2):
        releases.stage(rendered(description=str(number)), "")
    releases.commit("tiny", 1, 1)
    monkeypatch.setattr(leftovers, "end", lambda service, user: [1])
    facts = {"release": 2, "previous": 1, "restart": True, "displaces": [], "command": "deploy", "requester": "t"}
    transaction.transact("tiny", transaction.begin("tiny", **facts))
    last = journal.latest("tiny").steps()[-1]
    assert last["step"] == "rollback_failed"
    assert "the host needs a reboot; nothing was started" in last["message"]
    assert not any("start" in argv for argv in commands)
    assert releases.committed("tiny")["release"] == 1


@pytest.mark.parametrize(
    ("state", "served", "steps"),
    [
        ({}, True, ["stop", "end u"]),
        ({}, False, ["kill", "stop", "end u"]),
        ({"LoadState": "not-found", "User": ""}, True, ["end declared"]),
    ],
)
def test_a_stop_waits_for_what_has_served_and_ends_what_is_left(root, monkeypatch, state, served, steps):
    ran = []
    shown = {"LoadState": "loaded", "Result": "success", "User": "u", **state}
    monkeypatch.setattr(systemd, "show", lambda unit: shown)
    monkeypatch.setattr(systemd, "kill", lambda unit, grace: ran.append("kill"))
    monkeypatch.setattr(systemd, "stop", lambda unit, timeout: ran.append("stop"))
    monkeypatch.setattr(leftovers, "end", lambda service, user: ran.append("end " + user) or [])
    transaction.stop("tiny", "declared", served)
    assert ran == steps


def test_a_release_is_started_when_the_old_one_is_gone_and_the_gpus_are_free(root, monkeypatch):
    release = {**rendered(), "gpus": [3]}
    ran = []
    log = journal.Journal.new("tiny")
    monkeypatch.setattr(transaction, "stop", lambda service, *more: ran.append(f"stop {service}"))
    monkeypatch.setattr(systemd, "disable", lambda unit: ran.append(f"disable {unit}"))
    monkeypatch.setattr(transaction, "_install", lambda service, number: None)
    monkeypatch.setattr(transaction.gpus, "wait_free", lambda indices, timeout: ran.append(f"wait {indices} {timeout}"))
    monkeypatch.setattr(transaction, "_load", lambda log, release, number: ran.append("load") or 4.5)
    assert transaction._replace(log, release, 2, ["other"]) == 4.5
    assert ran == ["stop tiny", "stop other", "disable other.service", "wait [3] 120", "load"]
    assert [step["step"] for step in log.steps()] == ["stopping", "waiting_gpus", "starting"]

    def busy(indices, timeout):
        raise HostError("the GPUs are not free after 120 s: GPU 3: pid 7 (x)")

    monkeypatch.setattr(transaction.gpus, "wait_free", busy)
    ran.clear()
    with pytest.raises(HostError, match="pid 7"):
        transaction._replace(log, release, 2)
    assert ran == ["stop tiny"]


def test_a_jump_of_the_clock_neither_fails_nor_prolongs_a_load(root, commands, monkeypatch):
    """Waiting is on the monotonic clock; the wall clock may jump by a day in either direction."""
    release = rendered(verify={"load_timeout": 50, "stall_timeout": 50})
    releases.stage(release, "")
    seconds, wall = itertools.count(), itertools.cycle([86400.0, -86400.0])
    monkeypatch.setattr(ready.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(ready.time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(ready.time, "time", lambda: next(wall))
    monkeypatch.setattr(systemd, "pids", lambda group: [])
    answers = iter(["GET /health: status 503"] * 5 + [None])
    monkeypatch.setattr(ready, "_unready", lambda *arguments: next(answers))
    assert ready.wait(release, 1) < 50
    monkeypatch.setattr(ready, "_unready", lambda *arguments: "GET /health: status 503")
    with pytest.raises(StepError, match=r"(loading has stalled|not ready after).*GET /health: status 503"):
        ready.wait(release, 1)


@pytest.mark.parametrize(
    ("line", "starts", "ends_with"),
    [
        ("name: EADDRINUSE, message: address already in use", 2, "committed"),  # drawn by lot: can pass
        ("launch_server.py: error: argument --tp-size: invalid int value: 'two'", 1, "restored"),
        ("torch.OutOfMemoryError: CUDA out of memory", 1, "restored"),
        ("something that no table knows", 1, "restored"),
    ],
)
def test_only_a_start_whose_cause_can_pass_is_tried_once_more(root, commands, monkeypatch, line, starts, ends_with):
    release = rendered(engine="sglang")
    releases.stage(release, "")
    tried = []

    def wait(release, number):
        tried.append(number)
        for error in outcomes:
            raise error
        return 1.0

    monkeypatch.setattr(systemd, "log", lambda *arguments: [line])
    outcomes = iter([ready.failed(release, {**systemd.show("x"), "ExecMainStatus": 1}, "the engine ended")])
    monkeypatch.setattr(ready, "wait", wait)
    monkeypatch.setattr(systemd, "start", lambda unit, timeout: None)
    monkeypatch.setattr(leftovers, "end", lambda service, user: [])
    monkeypatch.setattr(transaction.gates, "all_gates", lambda *arguments, **options: [])
    facts = {"release": 1, "previous": None, "restart": True, "displaces": [], "command": "deploy", "requester": "t"}
    transaction.transact("tiny", transaction.begin("tiny", **facts))
    assert len(tried) == starts
    assert journal.latest("tiny").steps()[-1]["step"] == ends_with
