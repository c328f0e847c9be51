"""The final report: what a person must find in it, and what must not do harm to the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from servewright.driver.results import HostResult, RunResult
from servewright.report.exit_code import exit_code
from servewright.report.layout import as_text
from servewright.report.text import text

GATES = [
    {"id": "identity", "verdict": "passed", "message": "serves 'kimi'"},
    {"id": "engine", "verdict": "failed", "message": "attention_backend is triton, declared is flashinfer"},
    {"id": "stable", "verdict": "skipped", "message": "an earlier gate failed"},
]
ROLLED_BACK: dict[str, Any] = {
    "service": "kimi",
    "verdict": "rolled_back",
    "release": 7,
    "previous": 7,
    "seconds": 760,
    "message": "gate engine failed: attention_backend is triton, declared is flashinfer",
    "steps": [{"step": "staged", "release": 8}],
    "gates": GATES,
    "rollback_gates": [{"id": "identity", "verdict": "passed", "message": ""}],
    "log": ["\x1b[31mlast words\x1b[0m", "  0%|\r 50%|\r100%|", "\x1b]0;title\x07bell\x07"],
}


def shown(result: RunResult, width: int | None = None, verbose: bool = False, colour: bool = False) -> str:
    return as_text(text(result, exit_code(result), width, verbose), colour)


def of(command: str, *services: dict[str, Any]) -> RunResult:
    return RunResult(command, {"gpu1": HostResult(services=list(services))})


def test_a_rollback_says_what_serves_why_and_what_to_do() -> None:
    report = shown(of("deploy", ROLLED_BACK))

    assert "gpu1  kimi  ROLLED BACK  release 8 failed, release 7 serves  12m 40s\n" in report
    assert report.count("attention_backend is triton") == 1
    assert "restored  1 passed: identity" in report
    assert "servewright logs kimi --limit gpu1" in report
    assert report.endswith("exit code 4: failed, and rolled back to what ran before\n")


def test_log_lines_cannot_act_on_the_terminal() -> None:
    report = shown(of("deploy", ROLLED_BACK))

    assert "last words\n" in report
    assert "100%|\n" in report
    assert " 50%|" not in report
    assert "bell\n" in report
    assert not {"\x1b", "\r", "\x07"} & set(report)


def test_nothing_is_wider_than_the_terminal() -> None:
    long = dict(ROLLED_BACK, message="word " * 60, log=["x" * 300], next_steps=["do this " * 30])
    lines = shown(of("deploy", long), width=80).splitlines()

    assert max(map(len, lines)) <= 80
    assert shown(of("deploy", long)).count("x" * 300) == 1  # not a terminal: whole


def test_changes_are_grouped_by_what_they_cost() -> None:
    changes = [
        {"field": "verify.stable", "old": 10, "new": 20, "consequence": "none"},
        {"field": "flag --tp", "old": "4", "new": "8", "consequence": "restart"},
        {"field": "environment.NCCL_ALGO", "old": None, "new": "", "consequence": "restart"},
        {"field": "unit Unit.Description", "old": "a", "new": "b", "consequence": "reload"},
    ]
    lines = shown(of("plan", {"service": "kimi", "verdict": "changes", "changes": changes})).splitlines()

    assert [" ".join(line.split()) for line in lines] == [
        "gpu1 kimi would change with a restart",
        "restart flag --tp 4 -> 8",
        'environment.NCCL_ALGO (none) -> ""',
        "reload unit Unit.Description a -> b",
        "no effect verify.stable 10 -> 20",
        "",
        "gpu1: 1 service restarts (time down not known)",
    ]


def test_a_plan_without_a_restart_says_so() -> None:
    change = {"field": "x", "old": 1, "new": 2, "consequence": "reload"}
    assert "would change  without a restart" in shown(of("plan", {"verdict": "changes", "changes": [change]}))


def test_of_long_values_the_difference_is_shown() -> None:
    common = "/usr/bin/python3 -I /usr/local/lib/servewright/host.pyz cleanup --service kimi"
    change = {"field": "x", "old": common, "new": common + " --strict", "consequence": "reload"}

    assert "--strict" in shown(of("plan", {"verdict": "changes", "changes": [change]}))


def test_a_refusal_gives_the_repair_of_each_check_once() -> None:
    checks = [
        {"id": "model", "severity": "fatal", "passed": False, "message": "no model folder", "repair": "put it there"},
        {"id": "port", "severity": "fatal", "passed": False, "message": "port is taken", "repair": "end that process"},
        {"id": "disk", "severity": "warning", "passed": False, "message": "disk is slow", "repair": ""},
        {"id": "space", "severity": "fatal", "passed": True, "message": "never seen", "repair": ""},
    ]
    refused = {"service": "kimi", "verdict": "refused", "message": "no model folder; port is taken", "checks": checks}
    report = shown(of("deploy", refused))

    for once in ("no model folder", "-> put it there", "port is taken", "-> end that process", "disk is slow"):
        assert report.count(once) == 1
    assert "never seen" not in report
    assert "exit code 3: refused before anything was touched" in report


def test_verify_shows_every_gate_and_deploy_only_what_failed() -> None:
    failed = {
        "service": "kimi",
        "verdict": "failed",
        "gates": GATES,
        "message": f"gate engine failed: {GATES[1]['message']}",
    }

    assert [line.split()[:2] for line in shown(of("verify", failed)).splitlines()[1:4]] == [
        ["passed", "identity"],
        ["FAILED", "engine"],
        ["skipped", "stable"],
    ]
    assert "serves 'kimi'" not in shown(of("deploy", failed))
    assert "serves 'kimi'" in shown(of("deploy", failed), verbose=True)


def test_trouble_comes_last() -> None:
    result = RunResult(
        "deploy",
        {
            "gpu1": HostResult(services=[ROLLED_BACK]),
            "gpu2": HostResult(error="no route to host", unreachable=True),
            "gpu3": HostResult(services=[{"service": "kimi", "verdict": "unchanged"}]),
        },
    )
    report = shown(result)

    assert report.index("gpu3") < report.index("gpu1") < report.index("gpu2  UNREACHABLE")
    assert "2 services: 1 ROLLED BACK, 1 unchanged" in report


def test_a_problem_of_a_whole_group_is_told_once() -> None:
    problem = {
        "file": "/inventory/llm.yml",
        "line": 31,
        "path": "servewright_services[0].gpu",
        "message": "unknown key 'gpu'",
        "value": [0],
        "hint": "did you mean 'gpus'?",
    }
    other = dict(problem, line=40)
    result = RunResult("plan", {"gpu1": HostResult(problems=[problem]), "gpu2": HostResult(problems=[problem, other])})
    report = shown(result)

    assert "/inventory/llm.yml:31  INVALID  gpu1, gpu2\n" in report
    assert "/inventory/llm.yml:40  INVALID  gpu2\n" in report
    assert "servewright_services[0].gpu\n" in report
    assert "did you mean 'gpus'?" in report


@pytest.mark.parametrize(
    ("step", "expected"), [("kimi", "servewright follow kimi --limit gpu1"), ("", "servewright status")]
)
def test_an_interrupted_deploy_says_that_the_host_goes_on(step: str, expected: str) -> None:
    rows = [{"host": "gpu1", "service": step, "step": "loading"}]
    report = shown(RunResult("deploy", interrupted=2, unfinished=rows))

    assert "STOPPED by SIGINT" in report
    assert "by itself" in report
    assert expected in report


def test_an_interrupted_look_has_nothing_to_go_on() -> None:
    assert "by itself" not in shown(
        RunResult("status", interrupted=2, unfinished=[{"host": "gpu1", "service": "", "step": ""}])
    )


def test_status_is_one_table() -> None:
    state = {
        "active": "active",
        "sub": "running",
        "since": "Sun 2026-11-29 16:02:11 UTC",
        "restarts": 0,
        "transaction": "committed",
    }
    result = RunResult(
        "status",
        {
            "gpu1": HostResult(services=[{"service": "kimi", "verdict": "ok", "release": 7, "state": state}]),
            "gpu2": HostResult(
                services=[
                    {
                        "service": "embedding",
                        "verdict": "ok",
                        "message": "was interrupted",
                        "state": {"active": "failed", "sub": "failed"},
                    }
                ]
            ),
        },
    )
    lines = shown(result).splitlines()

    assert lines[1].split() == ["gpu1", "kimi", "active", "7", "0", "committed", "2026-11-29", "16:02:11", "UTC"]
    assert lines[2].split() == ["gpu2", "embedding", "failed", "-", "-", "-", "-"]
    assert [line.index("STATE") for line in lines[:1]] == [lines[1].index("active")]
    assert "gpu2 embedding: was interrupted" in lines[3]


def test_a_watch_shows_what_the_timer_knows_and_does() -> None:
    declared = {"every": 30.0, "failures": 3, "restart": True}
    watch = {"verdict": "busy", "since": "2026-11-30T09:00:00+00:00", "failures": 0, "declared": declared}
    kimi = {"service": "kimi", "verdict": "ok", "message": "no answer within 60 s", "watch": watch}
    small = {"service": "small", "verdict": "ok", "watch": {**watch, "verdict": "healthy", "declared": None}}
    new = {"service": "new", "verdict": "error", "message": "no release"}
    lines = shown(of("watch", kimi, small, new)).splitlines()

    assert lines[1].split()[:4] == ["gpu1", "kimi", "busy", "0"]
    assert lines[1].endswith("every 30 s; dead after 3 in a row, then restarts it")
    assert (lines[2].split()[2], lines[2].split()[-1]) == ("healthy", "none")
    assert "gpu1 kimi: no answer within 60 s" in lines[3]
    assert "gpu1 new: no release" in lines[4]


def test_history_says_who_when_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {
        "release": 8,
        "time": "2026-11-29T16:02:11.123+00:00",
        "command": "deploy",
        "by": "ci@runner",
        "reason": "more cache",
        "verdict": "rolled_back",
        "seconds": 760.2,
    }
    report = shown(
        of("history", {"service": "kimi", "verdict": "ok", "history": [entry]}, {"service": "new", "verdict": "ok"})
    )

    for part in ("deploy", "8", "ROLLED BACK", "12m 40s", "ci@runner", "more cache"):
        assert part in report
    assert "new  no transactions yet" in report


def test_logs_and_units_can_be_saved_as_they_are() -> None:
    assert shown(of("logs", {"service": "kimi", "verdict": "ok", "log": ["one", "two"]})) == "# gpu1 kimi\none\ntwo\n"
    unit = {"service": "kimi", "verdict": "ok", "files": {"unit": "[Unit]\nDescription=x\n"}}
    assert shown(of("render", unit)) == "# gpu1 kimi\n[Unit]\nDescription=x\n"


@pytest.mark.parametrize(
    "command", ["validate", "render", "plan", "deploy", "verify", "watch", "status", "history", "rollback", "logs"]
)
def test_missing_keys_are_no_error(command: str) -> None:
    for service in (
        {},
        {"service": "kimi", "verdict": "ok"},
        {"verdict": "rolled_back", "gates": [{}], "checks": [{}], "changes": [{}]},
    ):
        assert shown(of(command, service), width=80, verbose=True)


def test_colour_is_all_that_colour_adds() -> None:
    import re

    coloured = shown(of("deploy", ROLLED_BACK), colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == shown(of("deploy", ROLLED_BACK))
