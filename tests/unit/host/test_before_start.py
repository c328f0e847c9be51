"""What is done before each start and after each stop, in that order, and what keeps a start from going on."""

from __future__ import annotations

import sys

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import gpus, leftovers, main, ports, proc, shm
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import HostError

START = ["before-start", "--service", "tiny", "--user", "u", "--address", "::", "--port", "30000"]
GPUS = [*START, "--gpus", "0,3", "--timeout", "9"]
STOP = ["after-stop", "--service", "tiny", "--user", "u"]


@pytest.fixture
def ran(monkeypatch):
    """Runs a command of host.pyz; gives what it did and its exit code. A test changes what the steps give."""
    done = []
    gives = {"left": [], "clean": [], "holders": [], "busy": None}

    def step(name, value):
        done.append(name)
        if isinstance(value, Exception):
            raise value
        return value

    monkeypatch.setattr(leftovers, "end", lambda service, user, report: step(f"end {service} {user}", gives["left"]))
    monkeypatch.setattr(shm, "clean", lambda service, user, report: step(f"clean {service} {user}", gives["clean"]))
    monkeypatch.setattr(ports, "holders", lambda address, port: step(f"port {address} {port}", gives["holders"]))

    def wait_free(indices, timeout, note):
        note("x")
        return step(f"gpus {indices} {timeout:g}", gives["busy"])

    monkeypatch.setattr(gpus, "wait_free", wait_free)
    monkeypatch.setattr(proc, "describe", lambda pid: f"pid {pid} (x)")

    def run(words, **changes):
        gives.update(changes)
        monkeypatch.setattr(sys, "argv", ["host.pyz", *words])
        with pytest.raises(SystemExit) as ended:
            main.main()
        return done, ended.value.code

    return run


def test_a_start_makes_way_then_looks_at_the_port_and_waits_for_the_gpus(ran, capsys):
    assert ran(GPUS) == (["end tiny u", "clean tiny u", "port :: 30000", "gpus [0, 3] 9"], 0)
    assert "waiting: x" in capsys.readouterr().out


def test_a_service_without_gpus_waits_for_none(ran):
    assert ran(START) == (["end tiny u", "clean tiny u", "port :: 30000"], 0)


def test_a_stop_only_cleans_up(ran):
    assert ran(STOP) == (["end tiny u", "clean tiny u"], 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"holders": [7, 0]}, "servewright: port 30000 is held by pid 7 (x), a process that cannot be seen\n"),
        ({"busy": HostError("the GPUs are not free")}, "servewright: the GPUs are not free\n"),
        ({"left": [7]}, "servewright: processes outlived SIGKILL: pid 7 (x): the host needs a reboot\n"),
        ({"left": HostError("tiny.service runs")}, "servewright: tiny.service runs\n"),
    ],
)
def test_what_is_in_the_way_ends_the_start_and_is_named(ran, capsys, given, message):
    assert ran(GPUS, **given)[1] == 1
    assert capsys.readouterr().err == message


def test_shared_memory_that_cannot_be_cleaned_keeps_nobody_from_serving(ran, capsys):
    assert ran(GPUS, clean=HostError("not sure"))[1] == 0
    assert "no shared memory was removed: not sure" in capsys.readouterr().out
