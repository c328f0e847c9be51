"""What a plan comes down to, for a tired person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from servewright.driver.results import HostResult, RunResult
from servewright.release import sources
from servewright.report import plan
from servewright.report.layout import as_text
from servewright.report.text import text
from tests.unit.report.samples import planned

FIRST = {"field": "service", "old": None, "new": "sglang", "consequence": "restart"}
RESTART = {"field": "x", "old": 1, "new": 2, "consequence": "restart"}
RELOAD = {**RESTART, "consequence": "reload"}
STOP = {"field": "service old", "old": "running", "new": "stopped", "consequence": "stop"}
NOTHING = {**RESTART, "consequence": "none"}
TIME = {"seconds": 200.0, "of": 2, "same_model": True}


def of(*changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"service": "kimi", "verdict": "changes" if changes else "unchanged", "changes": list(changes), **more}


SUMMARIES = [
    ([of(RESTART, downtime=TIME), of(RELOAD), of(), of()], "1 service restarts (~3 min down), 1 reload, 2 unchanged"),
    ([of(RESTART, downtime=TIME), of(RESTART, downtime=TIME)], "2 services restart (~7 min down)"),
    ([of(RESTART, downtime=TIME), of(RESTART)], "2 services restart (at least ~3 min down)"),
    ([of(RESTART)], "1 service restarts (time down not known)"),
    ([of(FIRST)], "1 service starts for the first time (time to load not known)"),
    ([of(FIRST, STOP)], "1 service starts for the first time (time to load not known), 1 stopped for it (service old)"),
    ([of(RELOAD), of(RELOAD)], "2 reloads"),
    ([of(NOTHING)], "1 without effect on the process"),
    ([of()], "1 unchanged"),
    ([{**of(RESTART), "verdict": "refused"}, of()], "1 unchanged, 1 refused"),
    ([], "no services"),
]


@pytest.mark.parametrize(("services", "expected"), SUMMARIES, ids=[row[1] for row in SUMMARIES])
def test_a_host_is_one_line(services: list[dict[str, Any]], expected: str) -> None:
    ((host, found, _),) = plan.summary(RunResult("plan", {"gpu1": HostResult(services=services)}))
    assert (host, found) == ("gpu1", expected)


def test_a_host_that_was_not_reached_is_a_line_too() -> None:
    hosts = {"gpu1": HostResult(unreachable=True, error="x"), "gpu2": HostResult(problems=[{"message": "bad"}])}
    assert [line[1:] for line in plan.summary(RunResult("plan", hosts))] == [
        ("unreachable", "bad"),
        ("the declaration is not valid", "bad"),
    ]


def test_the_dearest_comes_first_and_the_sum_last() -> None:
    lines = as_text(text(planned(), 2, 120), colour=False).splitlines()
    labels = [line.split()[0] for line in lines if line.startswith("    ") and line[4] != " "]
    assert labels == ["stop", "restart", "reload", "no", "warning"]
    assert lines[-3].startswith("gpu1: 1 service restarts (~6 min down), 1 stopped for it (service other)")
    assert lines[-2] == "gpu2: 1 unchanged"


def test_the_sum_fits_the_terminal() -> None:
    lines = as_text(text(planned(), 0, 60), colour=False).splitlines()
    assert lines[-3:] == [
        "gpu1: 1 service restarts (~6 min down), 1 stopped for it",
        "      (service other), 1 unchanged",
        "gpu2: 1 unchanged",
    ]


def test_a_source_is_told_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = {"origin": "profile pcie v1", "file": str(tmp_path / "hosts/llm.yml"), "line": 3}
    assert plan.source({"source": source}) == "profile pcie v1, hosts/llm.yml:3"
    assert plan.source({"source": {**source, "file": "/etc/llm.yml", "origin": ""}}) == "/etc/llm.yml:3"
    assert plan.source({"source": {"origin": "default", "file": "", "line": 0}}) == "default"
    assert plan.source({}) == ""


def test_what_follows_from_a_change_does_not_hide_it() -> None:
    ours = {**RESTART, "source": {"origin": sources.OURS}}
    derived = [{**ours, "field": f"environment.CACHE_{number}"} for number in (1, 2, 3)]

    def shown(*changes: dict[str, Any], verbose: bool = False) -> str:
        run = RunResult("plan", {"gpu1": HostResult(services=[of(*changes)])})
        return as_text(text(run, 0, None, verbose), colour=False)

    assert "and 3 that follow from these, such as environment.CACHE_1" in shown(RESTART, *derived)
    assert "CACHE_2" not in shown(RESTART, *derived)
    for whole in (shown(RESTART, *derived[:2]), shown(*derived), shown(RESTART, *derived, verbose=True)):
        assert "CACHE_2" in whole
