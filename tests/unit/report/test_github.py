"""Annotations of GitHub Actions, and the runner that obeys any line that looks like a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from servewright.cli import main, playbook
from servewright.driver.results import HostResult, RunResult
from servewright.report import github
from tests.unit.report.samples import PROBLEM, everything


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    return tmp_path


def test_a_problem_is_annotated_at_its_line(workspace: Path) -> None:
    problem = {**PROBLEM, "file": str(workspace / "hosts/llm.yml"), "message": "50%, or\nmore: bad"}
    assert list(github.commands(RunResult("validate", problems=[problem]))) == [
        "::error file=hosts/llm.yml,line=31,title=run%3A declaration servewright_services[0].gpu::50%25, or more: bad"
    ]


def test_failures_and_warnings_are_annotated_and_what_passed_is_not() -> None:
    lines = list(github.commands(everything()))
    assert [line.partition("::")[2].partition(" ")[0] for line in lines].count("warning") == 1
    assert sum(line.startswith("::error title=gpu1 kimi%3A gate engine::") for line in lines) == 1
    assert not any("identity" in line or "embed" in line for line in lines)
    assert all(len(line.splitlines()) == 1 for line in lines)


def obeyed(text: str) -> list[str]:
    """What a runner would take for commands: a line that begins with ::, unless they are stopped."""
    token, found = "", []
    for line in text.splitlines():
        word = line.strip()
        if token and word == f"::{token}::":
            token = ""
        elif not token and word.startswith("::stop-commands::"):
            token = word.removeprefix("::stop-commands::")
        elif not token and word.startswith("::"):
            found.append(word)
    return found


@pytest.mark.parametrize("automatic", [True, False])
def test_a_run_annotates_and_a_log_line_commands_nothing(
    automatic: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(playbook, "_run", lambda *_: everything())
    monkeypatch.setenv("GITHUB_ACTIONS", "true" if automatic else "")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    assert main.run(["deploy", *([] if automatic else ["--github"])]) == 4
    out, err = capsys.readouterr()
    assert "::error::obey me" in out  # the log line is shown
    assert obeyed(out) == []
    assert len(obeyed(err)) == len(list(github.commands(everything())))
    assert "## servewright deploy: failed, and rolled back" in (tmp_path / "summary.md").read_text()


def test_elsewhere_nothing_of_it_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setattr(playbook, "_run", lambda *_: RunResult("deploy", {"gpu1": HostResult(error="boom")}))
    main.run(["deploy"])
    assert "::" not in "".join(capsys.readouterr())


def test_json_stays_alone_on_the_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    monkeypatch.setattr(playbook, "_run", lambda *_: everything())
    main.run(["deploy", "--json", "--github"])
    assert json.loads(capsys.readouterr().out)["exit_code"] == 4
