"""Fixtures of the tests that need real systemd hosts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pytest
import testinfra
import yaml

from tests.hosts import fault_table, verdict_table
from tests.testbed import Host, Testbed, TestbedError
from tests.testbed.recipe import SUITE

LookInto = Callable[[Host], "testinfra.host.Host"]

TESTBED = pytest.StashKey[Testbed]()


class BootHosts(Protocol):
    """Boots hosts named gpu1, gpu2, ... for one test, after those it has booted before."""

    def __call__(
        self,
        count: int,
        *,
        binds: Mapping[Path, str] | None = None,
        prepare: Callable[[Path], None] | None = None,
        suite: str = SUITE,
    ) -> Sequence[Host]: ...


class WriteInventory(Protocol):
    """Writes an Ansible inventory (YAML) of these hosts, and returns its path.

    The hosts are in the group `group`, with the variables `variables`; `host_variables` are those of single hosts, by
    host name, on top of how to reach them.
    """

    def __call__(
        self,
        hosts: Iterable[Host],
        *,
        group: str = "llm",
        variables: Mapping[str, Any] | None = None,
        host_variables: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Path: ...


@pytest.fixture(scope="session")
def testbed(pytestconfig: pytest.Config) -> Iterator[Testbed]:
    """The test hosts of this session, with the image built."""
    try:
        with Testbed() as testbed:
            testbed.ensure_image()
            pytestconfig.stash[TESTBED] = testbed
            yield testbed
    except TestbedError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None  # one line for a user, not a traceback


@pytest.fixture
def hosts(testbed: Testbed) -> Iterator[BootHosts]:
    """Boots as many clean hosts as asked for, all at once; they are gone after the test."""
    booted: list[Host] = []

    def boot(
        count: int,
        *,
        binds: Mapping[Path, str] | None = None,
        prepare: Callable[[Path], None] | None = None,
        suite: str = SUITE,
    ) -> Sequence[Host]:
        names = [f"gpu{len(booted) + number}" for number in range(1, count + 1)]
        with ThreadPoolExecutor(count) as pool:
            new = list(pool.map(lambda name: testbed.boot(name, binds=binds, prepare=prepare, suite=suite), names))
        booted.extend(new)
        return new

    yield boot
    testbed.destroy_all()


@pytest.fixture
def host(hosts: BootHosts) -> Host:
    """A clean host."""
    return hosts(1)[0]


@pytest.fixture(scope="session")
def simulator() -> Callable[[Path], None]:
    """Puts simulated engines and a stub of nvidia-smi on a host that has not booted: hosts(1, prepare=simulator)."""
    from tests.simulator.install import install

    return install


@pytest.fixture
def engine_host(hosts: BootHosts, simulator: Callable[[Path], None]) -> Host:
    """A clean host with simulated engines."""
    return hosts(1, prepare=simulator)[0]


@pytest.fixture
def infra() -> LookInto:
    """Looks into a host with testinfra, over SSH."""

    def connect(host: Host) -> testinfra.host.Host:
        options, socket = " ".join(host.ssh_options()), str(host.control_path)
        return testinfra.get_host(f"ssh://root@{host.ip}", ssh_extra_args=options, controlpath=socket)

    return connect


@pytest.fixture
def inventory(tmp_path: Path) -> WriteInventory:
    """Writes Ansible inventories into the folder of the test."""

    def write(
        hosts: Iterable[Host],
        *,
        group: str = "llm",
        variables: Mapping[str, Any] | None = None,
        host_variables: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Path:
        members = {host.name: {**host.ansible_vars(), **(host_variables or {}).get(host.name, {})} for host in hosts}
        path = tmp_path / "inventory.yml"
        path.write_text(yaml.safe_dump({group: {"hosts": members, "vars": dict(variables or {})}}))
        return path

    return write


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what a failed test's hosts have to say; they are gone once the test has ended."""
    report = yield
    if report.failed and report.when in ("setup", "call") and TESTBED in item.config.stash:
        for host in item.config.stash[TESTBED].hosts:
            try:
                journal = host.journal()
            except TestbedError as error:
                journal = str(error)
            report.sections.append((f"journal of {host.name}", journal))
    return report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault-table", type=Path, help="write the table of faults and steps of this run to this file")
    parser.addoption("--verdict-rounds", type=int, default=1, help="how often test_verdicts.py judges each engine")
    parser.addoption("--verdict-record", type=Path, help="write its rounds here, and play none that is right in it")
    parser.addoption("--verdict-table", type=Path, help="write the page of the verdicts in the record to this file")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write docs/faults.md (`make faults`) or docs/verdicts.md (`make verdicts`) from what this run saw."""
    path: Path | None = config.getoption("--fault-table")
    if path is not None:
        reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
        path.write_text(fault_table.markdown([report for report in reports if report.when == "call"]))
    path = config.getoption("--verdict-table")
    if path is not None:
        path.write_text(verdict_table.markdown(verdict_table.Record(config.getoption("--verdict-record")).rounds))
