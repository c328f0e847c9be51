"""Markdown for a comment on a pull request."""

from __future__ import annotations

from datetime import UTC, datetime

from markdown_it import MarkdownIt

from servewright.report.html import html
from servewright.report.markdown import markdown
from tests.unit.report.samples import HOSTILE, everything, planned


def rendered(text: str) -> str:
    return MarkdownIt("commonmark", {"html": False}).enable("table").render(text)


def test_a_plan_can_be_read_in_a_comment() -> None:
    text = markdown(planned(), 2)
    assert text.startswith("## servewright plan: there are changes\n")
    assert "- **gpu1**: 1 service restarts (&#126;6 min down), 1 stopped for it (service other), 1 unchanged" in text
    assert "| restart | `flag --attention-backend` | `flashinfer` | `triton` | `group_vars/llm.yml:34` |" in text
    assert "| restart | `secret KEY` | `(secret)` | `(secret, changed)` |" in text
    # A warning stands beside the changes; what nothing has is no column.
    assert "- preflight drop_ins (warning): x.conf\n  - repair: rm\n" in text
    assert "| host | service | verdict | outcome |\n" in text
    assert "| took |" in markdown(everything(), 4)


def test_changes_are_told_also_when_they_do_not_count_in_the_exit_code() -> None:
    assert markdown(planned(), 0).startswith("## servewright plan: there are changes\n")
    assert "plan: there are changes" in html(planned(), 0, datetime(2026, 11, 30, tzinfo=UTC))


def test_foreign_text_formats_nothing_and_calls_nobody() -> None:
    text = markdown(everything(), 4)
    assert "@all" not in text.replace(f"{chr(10)}{HOSTILE}", "").split("```")[0]
    page = rendered(text)
    for tag in ("<script", "<strong>b", "<em>b", "<em>i", "\x1b"):
        assert tag not in page
    # The cell of a table ends where it should: every row has as many cells as its head.
    for row in page.split("<tr>")[1:]:
        assert row.count("<td") in (0, 5)


def test_a_log_line_does_not_end_the_log() -> None:
    page = rendered(markdown(everything(), 4))
    log = page.partition("<pre>")[2].partition("</pre>")[0]
    assert "loading shard 12" in log
    assert "::error::obey me" in log
