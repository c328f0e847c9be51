"""At every step of a transaction the controller dies or is cut off: the host goes on to a verdict by itself."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.hosts.commands import BIN
from tests.hosts.faults import FORWARD, FaultyLibrary, check, old_of, release, settled, small


@pytest.fixture(scope="module")
def faulty(testbed, simulator):
    """One host for all faults: each begins where the one before ended, which shows that a following deploy works."""
    host = testbed.boot("faulty", prepare=simulator)
    library = FaultyLibrary(host)
    assert library.deploy(release())["verdict"] == "committed"
    yield library
    testbed.destroy(host)


@pytest.mark.failure("8.12")
@pytest.mark.parametrize("step", FORWARD)
@pytest.mark.parametrize("fault", ["controller", "network"])
def test_8_12_the_controller_or_the_network_dies(faulty, inventory, step, fault):
    """The command line is killed with all its children, or cut off first: the transaction goes on to its verdict."""
    mark = f"{fault}-{step}"
    declared = small({"TEST_MARK": mark})
    path = inventory([faulty.host], variables={"servewright_services": [declared]})
    before = faulty.call("follow", "kimi", None, 0)["transaction"]
    started = subprocess.Popen(
        [BIN / "servewright", "deploy", "-i", str(path)], start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        faulty.wait_for_step("kimi", step, after=before)
        if fault == "network":
            faulty.host.network_off()
    finally:
        for pid in _group(started.pid):
            os.kill(pid, signal.SIGKILL)
        started.wait()
    assert settled(faulty)["verdict"] == "committed"
    faulty.host.network_on()
    committed = old_of(faulty)
    assert committed["environment"]["TEST_MARK"] == mark
    check(faulty, committed)


def _group(session: int) -> list[int]:
    """All processes of a session."""
    out = subprocess.run(
        ["ps", "-o", "pid=", "--sid", str(session)], capture_output=True, text=True, check=False
    ).stdout
    return [int(word) for word in out.split()]
