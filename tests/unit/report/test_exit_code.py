"""The exit code is a promise to whoever calls the command line from a program."""

from __future__ import annotations

import pytest

from servewright.driver.results import HostResult, RunResult
from servewright.report.exit_code import MEANING, exit_code


def of(*verdicts: str) -> HostResult:
    return HostResult(services=[{"verdict": verdict} for verdict in verdicts])


INVALID = HostResult(problems=[{"message": "wrong"}])
BROKEN = HostResult(error="boom")
AWAY = HostResult(error="no route", unreachable=True)


@pytest.mark.parametrize(
    ("hosts", "code"),
    [
        ([], 0),
        ([of()], 0),
        ([of("committed", "unchanged", "ok", "running")], 0),
        ([of("refused")], 3),
        ([INVALID], 3),
        ([of("rolled_back")], 4),
        ([of("rollback_failed")], 5),
        ([AWAY], 6),
        ([of("busy")], 7),
        ([of("running", "pending")], 7),
        ([BROKEN], 1),
        ([of("failed")], 1),
        ([of("error")], 1),
        ([of("no such verdict")], 1),
        ([HostResult(services=[{}])], 1),
        ([HostResult(note="not set")], 3),
        ([HostResult(note="not set"), HostResult(services=[{"verdict": "committed"}])], 0),
        ([HostResult()], 0),
    ],
)
def test_one_kind_of_result(hosts: list[HostResult], code: int) -> None:
    assert exit_code(RunResult("deploy", {f"gpu{n}": host for n, host in enumerate(hosts)})) == code


def test_the_worst_over_all_hosts_and_services_wins() -> None:
    worst_first = [
        (5, of("committed", "rollback_failed")),
        (4, of("rolled_back")),
        (1, BROKEN),
        (6, AWAY),
        (7, of("busy")),
        (3, INVALID),
        (2, of("changes")),
        (0, of("committed")),
    ]
    for at, (code, _) in enumerate(worst_first):
        hosts = {f"gpu{n}": host for n, (_, host) in enumerate(reversed(worst_first[at:]))}
        assert exit_code(RunResult("deploy", hosts), detailed=True) == code


def test_planned_changes_count_only_when_asked_for() -> None:
    result = RunResult("plan", {"gpu1": of("changes", "unchanged")})

    assert exit_code(result) == 0
    assert exit_code(result, detailed=True) == 2


def test_what_is_not_about_a_host() -> None:
    assert exit_code(RunResult("deploy", error="no inventory")) == 1
    assert exit_code(RunResult("validate", problems=[{"message": "wrong"}])) == 3
    assert exit_code(RunResult("validate", services=["kimi"])) == 0


def test_a_run_that_was_stopped_has_no_verdict_and_none_of_the_codes() -> None:
    assert exit_code(RunResult("deploy", {"gpu1": of("committed")}, interrupted=2)) == 130
    assert exit_code(RunResult("deploy", interrupted=15)) == 143
    assert sorted(MEANING) == list(range(8))
