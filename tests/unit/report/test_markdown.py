"""Markdown for a comment on a pull request."""

from __future__ import annotations

from markdown_it import MarkdownIt

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
