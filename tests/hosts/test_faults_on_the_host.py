"""At every step of a transaction the host side dies. Afterwards one verified release runs, and status is true."""

from __future__ import annotations

import pytest

from tests.hosts.commands import invocation
from tests.hosts.faults import FORWARD, NOT_YET, FaultyLibrary, check, old_of, release, settled


@pytest.fixture(scope="module")
def faulty(testbed, simulator):
    """One host for all faults: each begins where the one before ended, which shows that a following deploy works."""
    host = testbed.boot("faulty", prepare=simulator)
    library = FaultyLibrary(host)
    assert library.deploy(release())["verdict"] == "committed"
    yield library
    testbed.destroy(host)


@pytest.mark.parametrize("step", FORWARD)
def test_the_transaction_is_killed(faulty, step):
    old, new = old_of(faulty), release({"TEST_MARK": f"killed-{step}"})
    running = invocation(faulty.host)
    faulty.stop_at(new, step)
    faulty.host.run("systemctl kill --kill-who=all -s KILL servewright-transaction-kimi; rm -f /var/tmp/stop*")
    result = settled(faulty)
    expected = old if step in NOT_YET or result["verdict"] == "rolled_back" else new
    assert result["verdict"] == ("rolled_back" if expected is old else "committed")
    if step == "preflighted":
        assert invocation(faulty.host) == running  # nothing had been stopped, so going back restarts nothing
    check(faulty, expected)


@pytest.mark.parametrize("step", FORWARD)
def test_the_power_fails(faulty, step):
    old, new = old_of(faulty), release({"TEST_MARK": f"power-{step}"})
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
    faulty.stop_at(release({"SIM_GARBAGE": "1"}), "rolling_back")
    if fault == "kill":
        faulty.host.run("systemctl kill --kill-who=all -s KILL servewright-transaction-kimi; rm -f /var/tmp/stop*")
    else:
        faulty.host.power_cut()
        (faulty.host.root / "var/tmp/stopped").unlink(missing_ok=True)
        faulty.host.boot()
    assert settled(faulty)["verdict"] == "rolled_back"
    check(faulty, old)
