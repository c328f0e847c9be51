"""The page: valid, alone, and not at the mercy of what an engine logs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from tinyhtml5.parser import HTMLParser

from servewright.driver.results import HostResult, RunResult
from servewright.report.html import html
from servewright.report.performance import chart
from servewright.report.timeline import timeline
from tests.unit.report.samples import GATES, HOSTILE, ROLLED_BACK, everything, planned, steps

WHEN = datetime(2026, 11, 30, 1, 2, 3, tzinfo=UTC)
RUNS = {
    "everything": everything(),
    "plan": planned(),
    "error": RunResult("deploy", error=HOSTILE),
    "stopped": RunResult("deploy", interrupted=15),
    "nothing": RunResult("deploy", {"gpu1": HostResult()}),
    "odd": RunResult("x", {HOSTILE: HostResult(services=[{}, {"verdict": HOSTILE, "gates": [{}], "checks": [{}]}])}),
}


@pytest.fixture(params=list(RUNS))
def page(request: pytest.FixtureRequest) -> str:
    return html(RUNS[request.param], 4, WHEN)


def test_it_is_valid(page: str) -> None:
    parser = HTMLParser()
    parser.parse(page)
    assert parser.errors == []


def test_it_needs_nothing_else(page: str) -> None:
    """No address of another resource, no script, and no way for one to get in."""
    assert not re.search(r"<(?:link|script|img|iframe|object|base|form)\b|\s(?:src|srcset|style|on\w+)=", page)
    assert not re.search(r"(?:https?:)?//[a-z]|url\(|@import", page.replace("&#39;", ""))
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', page))


def test_it_can_be_used_without_seeing_it(page: str) -> None:
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'aria-labelledby="([^"]*)"', page)) <= set(ids)
    assert {target.removeprefix("#") for target in re.findall(r'href="([^"]*)"', page)} <= set(ids)
    assert not re.search(r"<th(?! scope=)[ >]", page)
    assert all("aria-label=" in svg for svg in re.findall(r"<svg[^>]*>", page))
    levels = [int(level) for level in re.findall(r"<h(\d)", page)]
    assert levels[0] == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))


def luminance(colour: str) -> float:
    """Of sRGB, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_its_colours_can_be_told_apart_in_light_and_dark() -> None:
    light, dark = re.findall(r":root \{(.*?)\}", html(RUNS["nothing"], 0, WHEN), re.DOTALL)
    for block in (light, dark):
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))
        pairs = [(name, f"{name}-fill") for name in ("good", "change", "bad")]
        pairs += [(text, ground) for text in ("text", "faint", "bar") for ground in ("page", "card")]
        pairs += [("text", "inset"), ("faint", "inset"), ("bad", "card")]
        for text, ground in pairs:
            lighter, darker = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, ground)


def test_all_that_led_to_a_rollback_is_on_it() -> None:
    text = html(everything(), 4, WHEN)
    for part in ("ROLLED BACK", "attention_backend is triton", "group_vars/llm.yml:34", "loading shard 12", "x.conf",
                 "13m 02s", "no SSH connection", "/inventory/llm.yml:31", "did you mean &#39;gpus&#39;?"):  # fmt: skip
        assert part in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script" not in text


def test_performance_is_drawn_against_what_it_is_compared_with() -> None:
    decode, ttft = chart(GATES)
    assert decode.text == "94.1 tok/s (90 to 97.5), release 7: 98, bound: 86.2"
    assert (decode.reference, ttft.reference) == (pytest.approx(100 / 1.1), None)
    assert decode.median == pytest.approx(94.1 / 98 * 100 / 1.1)
    assert "decode" in html(everything(), 4, WHEN)


@pytest.mark.parametrize("evidence", [None, {}, {"figures": {}}, {"figures": {"decode": {}}}, {"figures": [1]}])
def test_nothing_is_drawn_where_nothing_was_measured(evidence: object) -> None:
    assert chart([{"id": "performance", "evidence": evidence}]) == []
    assert chart([{"id": "stable"}]) == []


def test_a_timeline_shows_how_long_nothing_served() -> None:
    found = timeline(ROLLED_BACK["steps"])
    assert found is not None
    loading = next(bar for bar in found.bars if bar.step == "loading")
    assert (loading.start, loading.seconds, loading.back) == (15, 360, False)
    assert (found.seconds, found.down) == (782, 768)
    assert [bar.back for bar in found.bars].index(True) == 8
    assert all(0 <= bar.left <= 100 and bar.left + bar.width <= 100.001 for bar in found.bars)


@pytest.mark.parametrize(
    ("names", "down"),
    [
        ([("staged", 0), ("verifying", 1), ("committed", 9)], None),  # a reload: it never stopped
        ([("staged", 0), ("stopping", 1), ("verifying", 31), ("committed", 40)], 30),
        ([("staged", 0), ("stopping", 1), ("loading", 31), ("rollback_failed", 40)], None),
        ([("staged", 0), ("stopping", 5), ("verifying", 3), ("committed", 4)], -2),  # the clock was set back
    ],
)
def test_down_is_from_the_stop_to_the_gates(names: list[tuple[str, int]], down: float | None) -> None:
    found = timeline(steps(*names))
    assert found is not None
    assert found.down == (None if down is not None and down < 0 else down)


def test_no_timeline_without_times() -> None:
    assert timeline([]) is None
    assert timeline([{"step": "staged"}, {"step": "committed", "time": "yesterday"}]) is None
