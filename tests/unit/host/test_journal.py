"""The journal of a transaction."""

from __future__ import annotations

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import journal
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import DamagedError


@pytest.fixture
def written(root):
    found = journal.Journal.new("tiny")
    found.step("staged", release=2, reason="ä b")
    found.step("stopping")
    return found


def test_steps_come_back_in_order(written):
    assert [(step["step"], step.get("release")) for step in written.steps()] == [("staged", 2), ("stopping", None)]


def test_numbers_ascend_and_the_newest_is_the_latest(written):
    second = journal.Journal.new("tiny")
    second.step("staged")
    assert (written.number, second.number, journal.latest("tiny").number) == (1, 2, 2)
    assert written.service == "tiny"


def test_a_line_cut_short_by_a_power_failure_was_never_done(written):
    with open(written.path, "ab") as stream:
        stream.write(b'{"step": "starti')
    assert [step["step"] for step in written.steps()] == ["staged", "stopping"]
    written.step("rolling_back")
    assert [step["step"] for step in written.steps()] == ["staged", "stopping", "rolling_back"]


def test_an_edited_line_is_named(written):
    with open(written.path) as stream:
        text = stream.read()
    with open(written.path, "w") as stream:
        stream.write(text.replace("stopping", "committed"))
    with pytest.raises(DamagedError, match=r"000001.jsonl line 2 was edited"):
        written.steps()


def test_only_a_verdict_finishes_it(written):
    assert not written.finished()
    written.step("committed")
    assert written.finished()
