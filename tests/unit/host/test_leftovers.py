"""What proves that a process is a service's own, and how it is ended."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import leftovers, proc, systemd
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import HostError

ME = pwd.getpwuid(os.geteuid()).pw_name
KNOWN = "1" * 32


@pytest.mark.failure("2.2", "2.3")
@pytest.mark.parametrize(
    ("unit", "own_user", "environment", "proof"),
    [
        ("tiny.service", False, {}, "it is in the unit's control group"),
        ("", True, {"SERVEWRIGHT_SERVICE": "tiny"}, "its environment has SERVEWRIGHT_SERVICE=tiny"),
        ("", True, {"INVOCATION_ID": KNOWN}, f"it was started by the unit, as its invocation {KNOWN}"),
        ("", True, {"INVOCATION_ID": "2" * 32}, None),  # another unit's
        ("", True, {"INVOCATION_ID": KNOWN + "/../"}, None),
        ("", True, {"SERVEWRIGHT_SERVICE": "tin"}, None),
        ("", True, {}, None),
        ("", True, None, None),  # it ended
        ("", False, {"SERVEWRIGHT_SERVICE": "tiny"}, None),
        ("other.service", True, {"SERVEWRIGHT_SERVICE": "tiny"}, None),
        ("session-1.scope", True, {"SERVEWRIGHT_SERVICE": "tiny"}, None),
    ],
)
def test_2_2_and_2_3_the_proof_is_the_kernels_record(monkeypatch, unit, own_user, environment, proof):
    monkeypatch.setattr(proc, "unit", lambda pid: unit)
    monkeypatch.setattr(proc, "uid", lambda pid: os.geteuid() + (not own_user))
    monkeypatch.setattr(proc, "environment", lambda pid: environment)
    monkeypatch.setattr(systemd, "logged", lambda unit, invocation: (unit, invocation[:32]) == ("tiny.service", KNOWN))
    monkeypatch.setattr(proc, "same_processes", lambda pid: True)
    monkeypatch.setattr(proc, "all_pids", lambda: [7, os.getpid()])
    assert leftovers._proof(7, "tiny", ME) == proof
    assert leftovers.strays("tiny", ME) == ({7: proof} if proof and not unit else {})


def test_a_process_of_a_user_that_is_not_there_is_nobodys(monkeypatch):
    monkeypatch.setattr(proc, "unit", lambda pid: "")
    monkeypatch.setattr(proc, "environment", lambda pid: {"SERVEWRIGHT_SERVICE": "tiny"})
    assert leftovers._proof(os.getpid(), "tiny", "no such user") is None


@pytest.fixture
def stubborn(monkeypatch):
    """A process that takes no SIGTERM and is provably the service's; the unit is down."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(99)"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={"SERVEWRIGHT_SERVICE": "tiny"}
    )
    child.stdout.readline()
    monkeypatch.setattr(proc, "unit", lambda pid: "")
    monkeypatch.setattr(proc, "all_pids", lambda: [child.pid])
    monkeypatch.setattr(systemd, "show", lambda unit: {"ActiveState": "failed"})
    monkeypatch.setattr(leftovers, "GRACE_SECONDS", 0.1)
    yield child
    child.kill()
    child.wait()


def test_what_does_not_heed_sigterm_is_killed_and_named(stubborn):
    said = []
    assert leftovers.end("tiny", ME, report=said.append) == []
    assert stubborn.wait(9) == -signal.SIGKILL
    assert len(said) == 1
    assert said[0].startswith(f"ending pid {stubborn.pid} (")
    assert said[0].endswith("left over from tiny.service: its environment has SERVEWRIGHT_SERVICE=tiny")


@pytest.mark.failure("2.5")
def test_2_5_what_outlives_sigkill_is_told(stubborn, monkeypatch):
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda handle, number: None)
    monkeypatch.setattr(leftovers, "KILL_SECONDS", 0.1)
    assert leftovers.end("tiny", ME, report=str) == [stubborn.pid]


def test_a_number_that_another_process_took_over_is_let_go(stubborn, monkeypatch):
    proofs = iter(["proof", None])  # the second look is at the process that the handle stands for
    monkeypatch.setattr(leftovers, "_proof", lambda pid, service, user: next(proofs))
    assert leftovers.end("tiny", ME, report=str) == []
    assert stubborn.poll() is None


@pytest.mark.parametrize("state", ["active", "activating", "reloading"])
def test_nothing_of_a_service_that_runs_is_left_over(stubborn, monkeypatch, state):
    monkeypatch.setattr(systemd, "show", lambda unit: {"ActiveState": state})
    with pytest.raises(HostError, match=r"tiny\.service runs, so nothing of it is left over"):
        leftovers.end("tiny", ME)
    assert stubborn.poll() is None
    monkeypatch.setattr(proc, "unit", lambda pid: "tiny.service" if pid == os.getpid() else "")
    assert leftovers.end("tiny", ME, report=str) == []  # in a command of the unit itself
