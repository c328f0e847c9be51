"""What a command asks of Ansible."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servewright.cli import main
from servewright.driver import playbook as driver

RESULT = {"servewright": {"services": [{"service": "kimi", "verdict": "changes"}]}}


class FakePlaybook:
    """Notes its job, and ends as if every host would change."""

    jobs: list[driver.Job]
    rc, failure, interrupted = 0, "", 0

    def __init__(self, job: driver.Job):
        self.jobs.append(job)

    def __enter__(self) -> FakePlaybook:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        yield [{"event": "runner_on_start", "event_data": {"host": "gpu1"}}]
        yield [{"event": "runner_on_ok", "event_data": {"host": "gpu1", "res": RESULT}}]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[driver.Job]:
    monkeypatch.setattr(driver, "Playbook", FakePlaybook)
    monkeypatch.setattr(FakePlaybook, "jobs", [], raising=False)
    monkeypatch.chdir(tmp_path)
    return FakePlaybook.jobs


def variables(job: driver.Job) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in zip(job.arguments, job.arguments[1:], strict=False):
        if name == "-e" and value.startswith("{"):
            found |= json.loads(value)
    return found


def test_a_deploy(jobs: list[driver.Job], tmp_path: Path) -> None:
    (tmp_path / "inventory").mkdir()
    main.run(
        ["deploy", "kimi", "-l", "gpu1", "--reason", "it's time", "--lock-wait", "60", "-v", "--", "--forks", "20"]
    )

    (job,) = jobs
    assert job.arguments[:4] == ["-i", str(tmp_path / "inventory"), "--limit", "gpu1"]
    assert job.arguments[-4:] == ["-v", "--forks", "20", "servewright.llm.deploy"]
    assert variables(job) == {
        "servewright_only": ["kimi"],
        "servewright_reason": "it's time",
        "servewright_lock_wait": 60.0,
        "servewright_detach": False,
    }


def test_a_rollback_without_a_number_leaves_the_choice_to_the_host(jobs: list[driver.Job]) -> None:
    main.run(["rollback", "kimi"])
    main.run(["rollback", "kimi", "3"])

    assert "servewright_to_release" not in variables(jobs[0])
    assert variables(jobs[1])["servewright_to_release"] == 3


def test_without_an_inventory_ansible_looks_for_its_own(jobs: list[driver.Job]) -> None:
    main.run(["status"])
    main.run(["status", "-i", "gpu1,gpu2"])

    assert "-i" not in jobs[0].arguments
    assert jobs[1].arguments[:2] == ["-i", "gpu1,gpu2"]


def test_planned_changes_have_a_code_of_their_own_on_demand(jobs: list[driver.Job]) -> None:
    assert main.run(["plan"]) == 0
    assert main.run(["plan", "--detailed-exitcode"]) == 2


def test_a_password_is_asked_here_and_answered_to_ansible(
    jobs: list[driver.Job], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", lambda prompt: f"secret of {prompt}")
    main.run(["status", "-K", "--", "--ask-vault-pass"])

    assert {"--ask-become-pass", "--ask-vault-pass"} <= set(jobs[0].arguments)
    assert sorted(jobs[0].answers.values()) == ["secret of Vault password: ", "secret of sudo password: "]
    assert "secret" not in repr(jobs[0]) + capsys.readouterr().out


def test_a_password_cannot_be_asked_without_a_terminal(
    jobs: list[driver.Job], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)

    assert main.run(["status", "-K"]) == 1
    assert "needs a terminal" in capsys.readouterr().out
    assert jobs == []
