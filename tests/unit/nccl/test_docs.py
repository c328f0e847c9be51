from __future__ import annotations

from pathlib import Path

from servewright.nccl import rules

PAGE = Path(__file__).parents[3] / "docs" / "nccl" / "findings.md"


def test_every_finding_is_on_the_page_with_its_title() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| NCCL")}
    book = rules.book()
    assert rows.keys() == book.checks.keys() | book.rules.keys()
    for identifier, line in rows.items():
        assert f"| {book.title(identifier)} |" in line
    for identifier, rule in book.rules.items():
        assert f"| {rule.severity} |" in rows[identifier]
