"""The command line as a program: what it prints, with which code, and how little it loads."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from servewright import __version__
from servewright.cli import main, playbook
from servewright.cli.options import Common
from servewright.driver.results import HostResult, RunResult

COMMANDS = ["validate", "render", "preflight", "plan", "deploy", "verify", "status", "history", "rollback", "logs"]
COMMANDS += ["follow", "watch"]


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    out = capsys.readouterr().out
    assert [command for command in [*COMMANDS, "doctor", "version"] if f"  {command} " not in out] == []
    assert "..." not in out.partition("Commands:")[2]  # every line is whole on 80 columns


@pytest.mark.parametrize(
    "arguments", [["--nosuch"], ["nosuch"], ["rollback"], ["rollback", "kimi", "x"], ["logs", "-n", "0"]]
)
def test_a_wrong_call_is_an_error_and_not_the_code_for_changes(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 1
    assert "rror" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_common_options(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, Common]] = []

    def run(name: str, common: Common, _: object) -> RunResult:
        seen.append((name, common))
        return RunResult(name, {"gpu1": HostResult(services=[{"verdict": "rollback_failed"}])})

    monkeypatch.setattr(playbook, "_run", run)
    arguments = [
        command,
        "kimi",
        "-i",
        "a",
        "-i",
        "b",
        "-l",
        "gpu1",
        "-e",
        "x=1",
        "-K",
        "--json",
        "-vv",
        "--",
        "--forks",
        "20",
    ]

    assert main.run(arguments) == 5
    (name, common) = seen[0]
    assert name == {"doctor": "preflight"}.get(command, command)
    assert (common.inventory, common.limit, common.extra_vars, common.verbose) == (["a", "b"], "gpu1", ["x=1"], 2)
    assert common.ask_become_pass
    assert common.json
    assert common.ansible == ["--forks", "20"]


def test_nothing_slow_is_loaded_before_a_command_needs_it() -> None:
    code = "import sys, servewright.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not {"rich", "pydantic", "ansible", "ansible_runner", "jinja2", "yaml"}.intersection(loaded)


def test_output_that_nobody_reads_to_the_end_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m servewright --help | true", shell=True, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def test_version_says_which_copy_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["version", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["collection_version"], found["problem"]) == (__version__, __version__, None)


def test_json_is_all_there_is_on_the_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(playbook, "_run", lambda command, *_: RunResult(command, error="ansible-runner failed"))

    assert main.run(["status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "ansible-runner failed"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_collection_of_another_version_is_refused(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    old = tmp_path_factory.mktemp("old")
    root = old / "ansible_collections/servewright/llm"
    root.mkdir(parents=True)
    (root / "galaxy.yml").write_text("{namespace: servewright, name: llm, version: 0.0.1}")
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(old))

    assert main.run([command, "kimi"]) == 1
    assert "another copy of its collection, 0.0.1" in capsys.readouterr().out
