"""All checks run, and each is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import preflight
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import HostError
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import check
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight.check import Subject, fatal, warning
from tests.unit.host.test_releases import rendered

DOCS = Path(__file__).parents[4] / "docs/preflight.md"


def test_every_check_is_in_the_documented_table():
    rows = re.findall(r"^\| (`.*?) \|", DOCS.read_text(), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {name for name, _check in preflight.CHECKS}


def test_a_check_that_could_not_look_is_fatal_where_the_table_says_that_it_can_be():
    rows = re.findall(r"^\| (`.*?) \| *(.*?) *\| .*\|$", DOCS.read_text(), re.MULTILINE)
    assert {name for names, fatal in rows if not fatal for name in re.findall(r"`(\w+)`", names)} == preflight.WARNS


def test_every_check_runs_whatever_another_one_finds_and_one_fatal_finding_refuses(monkeypatch):
    def broken(subject):
        raise HostError("nvidia-smi did not end within 60 s")

    def defect(subject):
        return int("")

    table = [
        ("a", broken),
        ("gpu_errors", broken),
        ("restart_limit", defect),
        ("b", lambda subject: [warning("w", "do", x=1), fatal("f")]),
        ("c", lambda subject: []),
        ("d", lambda subject: None),
    ]
    monkeypatch.setattr(preflight, "CHECKS", table)
    results = preflight.checks(rendered())
    assert [(item["id"], item["severity"], item["passed"], item["message"]) for item in results] == [
        ("a", "fatal", False, "could not be looked at: nvidia-smi did not end within 60 s"),
        ("gpu_errors", "warning", False, "could not be looked at: nvidia-smi did not end within 60 s"),
        ("restart_limit", "fatal", False,
         "could not be looked at: ValueError: invalid literal for int() with base 10: ''"),
        ("b", "warning", False, "w"),
        ("b", "fatal", False, "f"),
        ("c", "ok", True, ""),
        ("d", "ok", True, ""),
    ]  # fmt: skip
    assert (results[3]["repair"], results[3]["evidence"]) == ("do", {"x": 1})
    assert preflight.refused(results) == [results[0]["message"], results[2]["message"], "f"]
    assert preflight.refused(results[3:4]) == []


@pytest.mark.parametrize(
    ("unit", "pid", "ends"),
    [("tiny.service", 1, True), ("displaced.service", 1, True), ("other.service", 1, False), ("", 7, True),
     ("", 8, False)],
)
def test_what_the_service_and_those_it_displaces_hold_will_be_free(monkeypatch, unit, pid, ends):
    monkeypatch.setattr(check.proc, "unit", lambda pid: unit)
    monkeypatch.setattr(check.leftovers, "strays", lambda service, user: {7: "proof"})
    assert Subject(rendered(), ["displaced"]).ends(pid) == ends


def test_gpus_that_cannot_be_listed_are_asked_for_once(monkeypatch):
    asked = []

    def query():
        asked.append(1)
        raise HostError("mismatch")

    monkeypatch.setattr(check.gpus, "query", query)
    found = Subject({**rendered(), "gpus": [0]})
    assert (found.gpus, found.claimed, found.gpu_failure, found.gpu_health, asked) == ({}, {}, "mismatch", {}, [1])


def test_health_and_links_are_asked_of_gpus_that_are_there(monkeypatch):
    monkeypatch.setattr(check.gpus, "query", lambda: {0: {"uuid": "a"}, 1: {"uuid": "b"}})
    monkeypatch.setattr(check.gpus, "health", lambda: {0: "well"})
    monkeypatch.setattr(check.gpus, "topology", lambda word: f"topo {word}")
    found = Subject({**rendered(), "gpus": [1, 5]})
    assert (found.claimed, found.gpu_health, found.gpu_links) == ({1: {"uuid": "b"}}, {0: "well"}, "topo -m")
