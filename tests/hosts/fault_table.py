"""The table of faults and steps in docs/faults.md, made from a test run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tests.hosts.faults import FORWARD

FILES = ("tests/hosts/test_faults", "tests/hosts/test_trouble")
ROWS = {
    "test_the_transaction_is_killed": "the transaction is killed (SIGKILL, whole unit)",
    "test_the_power_fails": "the host loses power, and boots",
    "test_8_12_the_controller_or_the_network_dies[controller": "the controller is killed (SIGKILL, all its processes)",
    "test_8_12_the_controller_or_the_network_dies[network": "the network is lost, then the controller is killed",
    "test_a_disk_that_fills_up_does_not_stop_the_way_back[etc": "the disk of units and releases is full from here on",
    "test_a_disk_that_fills_up_does_not_stop_the_way_back[var": "the disk of the journals is full from here on",
}
HEAD = """\
# Faults

Made by `make faults` from a run of the tests. A cell is one test: at that step of a deploy the fault happens, and
afterwards exactly one release runs, it is the old or the new one and passes its gates, `status` says so, and the next
deploy works. The engine is a simulated one; systemd, the host and the network are real.

"""
OTHERS = "\n## Other trouble during a deploy\n\n| what happens | outcome |\n|---|---|\n"


class Report(Protocol):
    nodeid: str
    passed: bool


def markdown(reports: Iterable[Report]) -> str:
    """The page, from the reports of the tests that ran."""
    mine = [report for report in reports if report.nodeid.startswith(FILES)]
    outcomes = {report.nodeid.split("::", 1)[1]: report.passed for report in mine}
    lines = ["| fault at step | " + " | ".join(FORWARD) + " |", "|---" * (len(FORWARD) + 1) + "|"]
    for test, title in ROWS.items():
        cells = [_cell(outcomes.get(f"{test}-{step}]" if "[" in test else f"{test}[{step}]")) for step in FORWARD]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    others = [
        f"| {name.removeprefix('test_').replace('_', ' ')} | {_cell(passed)} |"
        for name, passed in sorted(outcomes.items())
        if not any(name.startswith(test) for test in ROWS)
    ]
    return HEAD + "\n".join(lines) + "\n" + OTHERS + "\n".join(others) + "\n"


def _cell(passed: bool | None) -> str:
    return {True: "passed", False: "**failed**", None: "not run"}[passed]
