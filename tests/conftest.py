"""How examples are made, and the table of failures that a run of the tests writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("servewright", deadline=None)
settings.load_profile("servewright")


# The longest first, so that no worker is left alone with one of them at the end.
LONG = (
    "hosts/test_trouble.py", "hosts/test_drift.py", "hosts/test_lifecycle.py", "hosts/test_faults_of_the_controller.py",
    "hosts/test_performance.py", "hosts/test_stop_and_start.py", "hosts/test_drift_commands.py",
    "hosts/test_faults_on_the_host.py", "hosts/test_verdicts.py", "packaging/test_sanity.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    place = {folder / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "failure(row, ...): brings rows of tests/failures.yml about")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--failure-table", type=Path, help="write what this run saw into the table of failures here")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write docs/failures.md from what this run saw (`make failures`)."""
    path: Path | None = config.getoption("--failure-table")
    if path is None:
        return
    import failure_table  # in dev/, which is on sys.path as the package is

    outcomes: dict[str, bool] = {}
    for kind in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(kind, []):
            if report.when == "call" or kind != "passed":
                test = report.nodeid.partition("[")[0]
                outcomes[test] = outcomes.get(test, True) and kind == "passed"
    path.write_text(failure_table.table(path.read_text(), outcomes))
