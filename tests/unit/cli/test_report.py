"""Files beside the report, and reports of runs that are over."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from servewright.cli import main, playbook
from servewright.report.document import document, from_document
from tests.unit.report.samples import everything


def test_a_run_leaves_the_files_that_were_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playbook, "_run", lambda *_: everything())
    assert main.run(["deploy", "--junit", str(tmp_path / "a.xml"), "--html", str(tmp_path / "a.html")]) == 4
    assert ElementTree.parse(tmp_path / "a.xml").getroot().tag == "testsuites"
    assert "ROLLED BACK" in (tmp_path / "a.html").read_text()


def test_what_is_refused_by_validation_is_in_them_too(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {hosts: {gpu1: {servewright_services: [{name: Kimi}]}}}")
    assert main.run(["validate", "-i", str(tmp_path), "--junit", str(tmp_path / "a.xml")]) == 3
    assert "hosts.yml:1: " in (tmp_path / "a.xml").read_text()


@pytest.mark.parametrize("option", ["--junit", "--html"])
@pytest.mark.parametrize("command", ["deploy", "validate"])
def test_a_file_that_cannot_be_written_is_told_before_anything_runs(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(playbook, "_run", lambda *_: pytest.fail("it ran"))
    monkeypatch.chdir(tmp_path)
    assert main.run([command, option, "none/x"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("error  cannot write none/x: no folder ")
    assert err == ""


def test_a_report_that_cannot_be_written_does_not_hide_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(playbook, "_run", lambda *_: (tmp_path / "a.xml").mkdir() or everything())
    assert main.run(["deploy", "--junit", str(tmp_path / "a.xml")]) == 4
    out, err = capsys.readouterr()
    assert "ROLLED BACK" in out
    assert "a.xml" in err


def test_a_document_says_the_same_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert from_document(document(everything(), 4)) == everything()
    path = tmp_path / "run.json"
    path.write_text(document(everything(), 4))
    assert main.run(["report", str(path), "--html", str(tmp_path / "a.html")]) == 4
    assert "gpu1  kimi  ROLLED BACK" in capsys.readouterr().out
    assert "ROLLED BACK" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is not JSON"), ("[]", "not the JSON document"), ('{"hosts": {"a": {"x": 1}}}', "not the JSON document")],
)
def test_what_is_no_document_is_an_error(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    assert main.run(["report", str(path)]) == 1
    assert message in capsys.readouterr().out
    assert main.run(["report", str(tmp_path / "none")]) == 1
    assert main.run(["report", str(tmp_path)]) == 1
    assert "no job_events" in capsys.readouterr().out


def test_artifacts_of_ansible_runner_become_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def event(number: int, kind: str, host: str, **result: object) -> None:
        data = {"event": kind, "counter": number, "event_data": {"host": host, "res": result}}
        (events / f"{number}-5a.json").write_text(json.dumps(data))

    events = tmp_path / "5b" / "job_events"
    events.mkdir(parents=True)
    answer = {"command": "deploy", "problems": [], "services": [{"service": "kimi", "verdict": "committed"}]}
    for number, host in ((9, "gpu1"), (10, "gpu2"), (11, "gpu3")):
        event(number, "runner_on_start", host)
    event(12, "runner_on_ok", "gpu2", servewright=answer)
    event(13, "runner_on_ok", "gpu1", servewright=answer)
    event(14, "runner_on_unreachable", "gpu3", msg="Failed to connect to the host via ssh: no route", unreachable=True)
    (events / "5c-partial.json").write_text("{")
    (tmp_path / "5b" / "rc").write_text("4")
    for folder in (tmp_path, tmp_path / "5b"):
        assert main.run(["report", str(folder), "--json"]) == 6
        found = json.loads(capsys.readouterr().out)
        assert (found["command"], list(found["hosts"])) == ("deploy", ["gpu1", "gpu2", "gpu3"])
        assert found["hosts"]["gpu3"]["unreachable"] is True


def test_artifacts_of_a_run_that_reached_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job_events").mkdir()
    (tmp_path / "rc").write_text("1")
    assert main.run(["report", str(tmp_path)]) == 1
    assert "exit status 1" in capsys.readouterr().out
