"""To which unit a process belongs, read from the text of /proc/PID/cgroup."""

from __future__ import annotations

import os

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import leftovers, proc

UNIT = "system.slice/kimi.service"
LEGACY = "2:memory:/user.slice\n1:name=systemd:{}\n0::/\n"


@pytest.fixture
def groups(monkeypatch):
    """The control groups of PID 1 and of process 7."""
    texts = {1: b"0::/init.scope\n"}
    proc._manager_group.cache_clear()
    monkeypatch.setattr(proc, "_read", lambda pid, name: texts.get(pid) if name == "cgroup" else None)
    yield texts
    proc._manager_group.cache_clear()


@pytest.mark.failure("2.2")
@pytest.mark.parametrize(
    ("path", "unit"),
    [
        (f"/{UNIT}", "kimi.service"),
        (f"/{UNIT}/worker", "kimi.service"),
        ("/llm.slice/llm-big.slice/kimi.service", "kimi.service"),
        ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/kimi.service", "user@1000.service"),
        (f"/machine.slice/systemd-nspawn@a.service/payload/{UNIT}", "systemd-nspawn@a.service"),
        (f"/system.slice/docker-ab12.scope/{UNIT}", "docker-ab12.scope"),
        (f"/lxc.payload.ct/{UNIT}", ""),
        (f"/docker/ab12/{UNIT}", ""),
        (f"/../{UNIT}", ""),  # outside of what this host may see
        ("/stray", ""),
        ("/system.slice", ""),
        ("/", ""),
    ],
)
def test_2_2_the_unit_is_the_outermost_one(groups, path, unit):
    for text in ("0::{}\n", LEGACY):
        groups[7] = text.format(path).encode()
        assert proc.unit(7) == unit


def test_a_host_that_is_a_container_has_its_units_below_its_own_place(groups):
    groups[1] = b"0::/docker/ab12/init.scope\n"
    groups[7] = f"0::/docker/ab12/{UNIT}\n".encode()
    assert proc.unit(7) == "kimi.service"
    for other in ("/docker/ab1", "/docker/ab123", ""):
        groups[7] = f"0::{other}/{UNIT}\n".encode()
        assert proc.unit(7) == ""


def test_a_process_that_ended_has_no_unit(groups):
    assert proc.unit(8) == ""


@pytest.mark.failure("2.2")
def test_2_2_a_process_of_a_container_is_never_ours_whatever_its_environment_says(groups, monkeypatch):
    groups[7] = f"0::/lxc.payload.ct/{UNIT}\n".encode()
    monkeypatch.setattr(proc, "uid", lambda pid: os.geteuid())
    monkeypatch.setattr(proc, "environment", lambda pid: {"SERVEWRIGHT_SERVICE": "kimi"})
    monkeypatch.setattr(leftovers, "_uid", lambda user: os.geteuid())
    monkeypatch.setattr(proc.os.path, "samefile", lambda one, other: False)
    assert leftovers._proof(7, "kimi", "llm-kimi") is None
    monkeypatch.setattr(proc.os.path, "samefile", lambda one, other: True)
    assert leftovers._proof(7, "kimi", "llm-kimi") is not None
