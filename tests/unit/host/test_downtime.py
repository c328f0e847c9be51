"""How long a restart takes, from journals."""

from __future__ import annotations

import datetime as dt

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import downtime, journal, releases
from tests.unit.host.test_releases import rendered


@pytest.fixture
def clock(monkeypatch):
    """Sets the time that journals note: clock(seconds)."""
    begin = dt.datetime(2026, 11, 30, tzinfo=dt.UTC)

    def at(seconds):
        text = (begin + dt.timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
        monkeypatch.setattr(journal, "now", lambda: text)

    return at


def restarted(clock, number, *seconds, back=None):
    """The journal of a transaction that went to a release, down for some seconds, and `back` again for some more."""
    entry = journal.Journal.new("tiny")
    clock(0)
    entry.step("staged", release=number)
    entry.step("stopping")
    for taken in seconds:
        clock(taken)
        entry.step("verifying", service="tiny", release=number)
    if back:
        entry.step("rolling_back")
        entry.step("stopping")
        clock(seconds[-1] + back)
        entry.step("verifying", service="tiny", release=1)


def test_the_median_of_the_last_restarts_with_the_same_model(root, clock):
    model = rendered()["model"]["path"]
    assert downtime.expected("tiny", model) is None
    for _ in range(2):
        releases.stage(rendered(), "")
    releases.stage(rendered(model={"path": "/models/other", "served_name": "x"}), "")
    restarted(clock, 1, 1000)  # too long ago to count
    for taken in (40, 50, 60):
        restarted(clock, 2, taken)
    restarted(clock, 3, 400, back=70)  # another model, that failed, and back
    restarted(clock, 2, 300)
    assert downtime.expected("tiny", model) == {"seconds": 60, "of": 5, "same_model": True}
    assert downtime.expected("tiny", "/models/other") == {"seconds": 400, "of": 1, "same_model": True}
    assert downtime.expected("tiny", "/models/new") == {"seconds": 70, "of": 5, "same_model": False}


def test_what_cannot_be_told_is_left_out(root, clock):
    releases.stage(rendered(), "")
    restarted(clock, 1, -5)  # the clock was set back
    restarted(clock, 1)  # it never came to serve
    entry = journal.Journal.new("tiny")
    entry.step("staged", release=1)
    with open(entry.path, "a") as stream:
        stream.write('{"step": "edited"}\n')
    assert downtime.expected("tiny", rendered()["model"]["path"]) is None
