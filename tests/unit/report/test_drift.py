"""What drift found, in every report: evidence or how much more of it there is, what follows, and what mends it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from servewright.driver.results import HostResult, RunResult
from servewright.report.html import html
from servewright.report.junit import junit
from servewright.report.layout import as_text
from servewright.report.markdown import markdown
from servewright.report.text import text

LINES = [f"/run/systemd/system/kimi.service.d/override.conf:{n}: Environment=NCCL_NUMBER_{n}={n}" for n in range(1, 10)]
WHEN = datetime(2026, 12, 1, tzinfo=UTC)


def run(needs_restart: bool = True) -> RunResult:
    finding = {
        "id": "unit.drop_in",
        "message": "changed by override.conf",
        "evidence": LINES,
        "consequence": "the next start is another",
        "repair": "move it",
        "needs_restart": needs_restart,
    }
    return RunResult(
        "drift", {"gpu1": HostResult(services=[{"service": "kimi", "verdict": "drift", "findings": [finding]}])}
    )


def test_a_terminal_shows_evidence_whole_and_says_how_much_more_there_is() -> None:
    shown = as_text(text(run(), 2, 80), colour=False)
    words = shown.split()
    assert all(word in words for line in LINES[:6] for word in line.split())
    assert "NCCL_NUMBER_7" not in shown
    assert "and 3 more (--json)\n" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_where_there_is_no_terminal_all_evidence_is_shown() -> None:
    shown = as_text(text(run(), 2, None), colour=False)
    assert all(f"{line}\n" in shown for line in LINES)
    assert "more (--json)" not in shown


@pytest.mark.parametrize(("needs_restart", "words"), [(True, "needs a restart"), (False, "needs no restart")])
def test_every_report_says_what_follows_and_whether_mending_restarts(needs_restart: bool, words: str) -> None:
    result = run(needs_restart)
    for report in (junit(result, WHEN), markdown(result, 2), html(result, 2, WHEN)):
        assert "consequence: the next start is another" in report
        assert f"repair: move it ({words})" in report
