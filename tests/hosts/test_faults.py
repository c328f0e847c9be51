"""At every step of a transaction something dies. Afterwards one release runs, verified, and status tells the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import Any

import pytest

from tests.hosts.commands import BIN, rendered, service
from tests.hosts.faults import FaultyLibrary

FORWARD = ["preflighted", "stopping", "waiting_gpus", "starting", "loading", "verifying", "verified", "committed"]
BACKWARD = ["rolling_back"]
NOT_YET = FORWARD[:-2]  # a fault here must end with the old release
SMALL: dict[str, Any] = {"gpus": [0], "parallelism": {"tensor": 1}}


def small(**changes: Any) -> dict[str, Any]:
    """A service that loads within a second."""
    environment = {"SIM_LOAD_SECONDS": "0.2", **changes.pop("environment", {})}
    return service(**SMALL, environment=environment, **changes)


@pytest.fixture(scope="module")
def faulty(testbed, simulator):
    """One host for all faults: each begins where the one before ended, which shows that a following deploy works."""
    host = testbed.boot("faulty", prepare=simulator)
    library = FaultyLibrary(host)
    assert library.deploy(rendered(small()))["verdict"] == "committed"
    yield library
    testbed.destroy(host)


def settled(library: FaultyLibrary, timeout: float = 60) -> dict[str, Any]:
    """Wait until nothing is under way any more; gives the result of the latest transaction."""
    end = time.monotonic() + timeout
    while True:
        result: dict[str, Any] = library.call("follow", "kimi", None, 1)
        if result["verdict"] != "running" and not library.status()["message"]:
            return result
        assert time.monotonic() < end, f"never settled: {result}"


def check(library: FaultyLibrary, expected: dict[str, Any]) -> None:
    """One release runs, it is the expected one, the gates pass, and status says so."""
    state = library.status()
    pid = library.host.run("systemctl show kimi -p MainPID --value").stdout.strip()
    environ = dict(
        item.split("=", 1) for item in library.host.run(f"cat /proc/{pid}/environ").stdout.split("\0") if item
    )
    assert environ.get("TEST_MARK") == expected["environment"].get("TEST_MARK")
    assert library.call("verify", "kimi")["verdict"] == "ok"
    assert (state["message"], state["state"]["active"]) == ("", "active")
    assert library.call("deploy", [expected], {}, True)[0]["verdict"] == "unchanged"
    groups = library.host.run(
        "for pid in $(pgrep -f '[s]glang.launch_server'); do grep name=systemd /proc/$pid/cgroup; done"
    )
    assert {line.rpartition("/")[2] for line in groups.stdout.split()} == {"kimi.service"}


def release(mark: str) -> dict[str, Any]:
    return rendered(small(environment={"TEST_MARK": mark}))


def old_of(library: FaultyLibrary) -> dict[str, Any]:
    number = library.status()["release"]
    path = library.host.root / f"etc/servewright/kimi/releases/{number}/release.json"
    found: dict[str, Any] = json.loads(path.read_text())
    del found["seal"]
    return found


@pytest.mark.parametrize("step", FORWARD)
def test_the_transaction_is_killed(faulty, step):
    old, new = old_of(faulty), release(f"killed-{step}")
    faulty.stop_at(new, step)
    faulty.host.run("systemctl kill --kill-who=all -s KILL servewright-transaction-kimi; rm -f /var/tmp/stop*")
    result = settled(faulty)
    expected = old if step in NOT_YET or result["verdict"] == "rolled_back" else new
    assert result["verdict"] == ("rolled_back" if expected is old else "committed")
    check(faulty, expected)


@pytest.mark.parametrize("step", FORWARD)
def test_the_power_fails(faulty, step):
    old, new = old_of(faulty), release(f"power-{step}")
    faulty.stop_at(new, step)
    faulty.host.power_cut()
    (faulty.host.root / "var/tmp/stopped").unlink(missing_ok=True)
    faulty.host.boot()
    result = settled(faulty)
    expected = old if step in NOT_YET or result["verdict"] == "rolled_back" else new
    assert result["verdict"] == ("rolled_back" if expected is old else "committed")
    check(faulty, expected)


@pytest.mark.parametrize("fault", ["kill", "power"])
def test_it_happens_while_rolling_back(faulty, fault):
    old = old_of(faulty)
    faulty.stop_at(rendered(small(environment={"SIM_GARBAGE": "1"})), "rolling_back")
    if fault == "kill":
        faulty.host.run("systemctl kill --kill-who=all -s KILL servewright-transaction-kimi; rm -f /var/tmp/stop*")
    else:
        faulty.host.power_cut()
        (faulty.host.root / "var/tmp/stopped").unlink(missing_ok=True)
        faulty.host.boot()
    assert settled(faulty)["verdict"] == "rolled_back"
    check(faulty, old)


@pytest.mark.parametrize("step", FORWARD)
@pytest.mark.parametrize("fault", ["controller", "network"])
def test_the_controller_or_the_network_dies(faulty, inventory, step, fault):
    """The command line is killed with all its children, or cut off first: the transaction goes on to its verdict."""
    mark = f"{fault}-{step}"
    declared = small(environment={"TEST_MARK": mark})
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
