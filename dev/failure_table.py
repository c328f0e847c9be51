"""The table of failures in docs/failures.md: made of tests/failures.yml and of the tests marked with a row of it.

Reads the tests without running them. Outcomes come from runs: `pytest --failure-table` keeps those it did not run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "tests/failures.yml"
NEEDED = ("what", "does", "sources")
NOT_RUN = "not run"
HEAD = """\
# Failures

What people met with these services, by their public reports, and what servewright does about it. A row has tests that
bring the failure about, on real systemd hosts unless their folder is `unit`, or says why it has none. The outcomes are
those of the last `make failures`; `make generate` makes the rest, and `make lint` checks it.

| row | what happens | what servewright does | tests | outcome | reports |
|---|---|---|---|---|---|
"""

Outcomes = Mapping[str, bool]


def table(current: str, outcomes: Outcomes | None = None) -> str:
    """The page; `current` is the one before, `outcomes` tells by "file::function" what a run saw.

    Raises ValueError when a row has neither a test nor a reason, has both, or no test that is named after it, or when a
    test names a row that is not there.
    """
    rows = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    tests: dict[str, list[str]] = {row: [] for row in rows}
    problems = []
    for row, test in marked():
        if row in tests:
            tests[row].append(test)
        else:
            problems.append(f"{test} is marked with failure {row!r}, which {ROWS.name} does not have")
    for row, entry in rows.items():
        problems += [f"{ROWS.name}: row {row} has no {key!r}" for key in NEEDED if not entry.get(key)]
        named = re.compile(r"test_.*?(?<!\d){}_{}(?!\d)".format(*row.split(".")))
        if tests[row] and not any(named.search(test) for test in tests[row]):
            problems.append(f"{ROWS.name}: row {row} has no test named after it; {tests[row][0]} may be it")
        if not tests[row] and not entry.get("reason"):
            problems.append(f"{ROWS.name}: row {row} has no test marked with it, and no reason why")
        if tests[row] and entry.get("reason"):
            problems.append(f"{ROWS.name}: row {row} has a reason for having no test, but {tests[row][0]} is one")
    if problems:
        raise ValueError("\n".join(problems))
    known = _outcomes(current) | dict(outcomes or {})
    lines = []
    for row, entry in sorted(rows.items(), key=lambda item: [int(part) for part in item[0].split(".")]):
        cells = [
            row,
            entry["what"],
            entry["does"],
            "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests[row]) or "none",
            "<br>".join(_word(known.get(test)) for test in tests[row]) or f"not reproduced: {entry['reason']}",
            ", ".join(entry["sources"]),
        ]
        lines.append("| " + " | ".join(cells) + " |\n")
    return HEAD + "".join(lines)


def marked() -> Iterator[tuple[str, str]]:
    """Each row of a test's mark with the test, as "file::function"."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.failure(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.failure":
                    for row in mark.args:
                        yield ast.literal_eval(row), f"{path.relative_to(ROOT)}::{node.name}"


def _word(passed: bool | None) -> str:
    return {True: "passed", False: "**failed**", None: NOT_RUN}[passed]


def _outcomes(page: str) -> dict[str, bool]:
    """What a page says of each test."""
    found = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        if len(cells) == 8 and "::" in cells[4]:
            for test, word in zip(cells[4].split("<br>"), cells[5].split("<br>"), strict=False):
                if word != NOT_RUN:
                    found["tests/" + test.strip("`")] = word == "passed"
    return found
