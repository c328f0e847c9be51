"""What is seen while a run goes on."""

from __future__ import annotations

import io
from typing import Any

from servewright.driver.progress import Progress
from servewright.report.board import Board
from servewright.report.progress import Plain, Terminal

START = {"event": "runner_on_start", "event_data": {"host": "gpu1"}}


def loading(line: str, elapsed: float = 0, step: str = "loading", host: str = "gpu1") -> Progress:
    return Progress(host, "kimi", step, elapsed, line)


def done(verdict: str) -> dict[str, Any]:
    res = {"servewright": {"services": [{"service": "kimi", "verdict": verdict}]}}
    return {"event": "runner_on_ok", "event_data": {"host": "gpu1", "res": res}}


class Run:
    """A run whose clock the test sets."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.board = Board()
        self.view = Plain(self.board, self.stream, 0.0)

    def at(self, now: float, *items: Any) -> list[str]:
        """The lines that are new after these items."""
        before = len(self.stream.getvalue())
        changed = [row for item in items for row in self.board.feed(item, now)]
        self.view.update(changed, now)
        return self.stream.getvalue()[before:].splitlines()


def test_plain_progress_has_a_line_a_phase_and_a_heartbeat() -> None:
    run = Run()

    assert run.at(1, START) == []
    assert run.at(9) == []
    assert run.at(11) == ["gpu1: working, 10s"]
    assert run.at(12, loading("shard 1", 2)) == ["gpu1 kimi: loading, 2s: shard 1"]
    assert run.at(15, loading("shard 2", 5)) == []
    assert run.at(21.9) == []
    assert run.at(22) == ["gpu1 kimi: loading, 12s: shard 2"]
    assert run.at(90, done("committed")) == ["gpu1 kimi: committed, 1m 20s"]
    assert run.at(200) == []


def test_a_rollback_is_seen_in_the_phases_that_follow_it() -> None:
    run = Run()
    run.at(1, loading("", step="verifying"))

    assert run.at(2, loading("", 2, step="rolling_back")) == ["gpu1 kimi: rolling back, 2s"]
    assert run.at(3, loading("x", 3, step="loading")) == ["gpu1 kimi: rollback: loading, 3s: x"]


def test_progress_cannot_act_on_the_terminal() -> None:
    assert Run().at(1, loading("\x1b[2J 10%\r 20%")) == ["gpu1 kimi: loading, 0s:  20%"]


def test_what_is_unfinished_is_known() -> None:
    board = Board()
    board.feed(START, 0)
    board.feed(loading(""), 0)
    board.feed(loading("", host="gpu2"), 0)
    board.feed(done("committed"), 5)

    assert [(row.host, row.service) for row in board.unfinished] == [("gpu2", "kimi")]


def test_a_terminal_has_one_line_a_service_no_wider_than_it_is() -> None:
    board = Board()
    for host in ("gpu1", "gpu22"):
        board.feed(loading("Loading safetensors checkpoint shards " * 5, 65, host=host), 100)
    lines = Terminal(board, io.StringIO(), 0.0).text(103, 80).plain.splitlines()

    assert [line.split()[:5] for line in lines] == [
        [host, "kimi", "loading", "1m", "08s"] for host in ("gpu1", "gpu22")
    ]
    assert all(len(line) < 80 for line in lines)
    assert lines[0].index("loading") == lines[1].index("loading")
