"""The wait for GPUs to be free before a start."""

from __future__ import annotations

import itertools
import types

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import gpus
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import HostError


@pytest.fixture
def says(monkeypatch):
    """What nvidia-smi prints, and how it ends."""

    def set_to(stdout, returncode=0):
        done = types.SimpleNamespace(stdout=stdout, stderr="", returncode=returncode)
        monkeypatch.setattr(gpus, "run", lambda argv, **options: done)

    return set_to


ROWS = """0, GPU-a, NVIDIA H200, 143771, 602, 9.0, 580.95.05, 00000000:3B:00.0
10, GPU-b, NVIDIA GB10, [N/A], [N/A], 12.1, 580.95.05, 0000000F:01:00.0
"""
INFOROM = "WARNING: infoROM is corrupted at gpu 0000:3B:00.0"


def test_the_gpus_of_a_host(says):
    says(ROWS)
    assert gpus.query() == {
        0: {"uuid": "GPU-a", "name": "NVIDIA H200", "total_mib": 143771, "used_mib": 602, "compute_capability": "9.0",
            "driver": "580.95.05", "place": "0000:3b:00.0", "warnings": []},
        10: {"uuid": "GPU-b", "name": "NVIDIA GB10", "total_mib": 0, "used_mib": 0, "compute_capability": "12.1",
             "driver": "580.95.05", "place": "000f:01:00.0", "warnings": []},
    }  # fmt: skip
    says("Failed to initialize NVML: Driver/library version mismatch\n", 18)
    with pytest.raises(HostError, match=r"^nvidia-smi: Failed to initialize NVML: Driver/library version mismatch$"):
        gpus.query()


@pytest.mark.parametrize("code", [0, 14])
def test_a_corrupted_inforom_is_a_warning_about_a_gpu_that_works(says, code):
    says(f"{ROWS}{INFOROM}\n", code)
    assert {index: gpu["warnings"] for index, gpu in gpus.query().items()} == {0: [INFOROM], 10: []}
    gpus.wait_free([0, 10], 0)  # a service that claims it can start again
    says(f"12, GPU-a, 4000\n{INFOROM}\n", code)
    assert gpus.clients() == [(12, "GPU-a", 4000)]
    says(f"3, Enabled, [N/A], 0, 5, 16, 16\n{INFOROM}\n", code)
    assert list(gpus.health()) == [3]
    says(f"matrix\n{INFOROM}\n", code)
    assert gpus.topology("-m").startswith("matrix")


def test_the_health_of_gpus_and_drivers_that_do_not_know_a_field(says):
    row = "3, Enabled, [N/A], 0, 5, 16, 16"
    says(row + "\nGPU is lost\n")
    assert list(gpus.health()) == [3]
    assert gpus.health()[3]["persistence_mode"] == "Enabled"
    assert gpus.health()[3]["pcie.link.width.max"] == "16"
    says(row, 2)
    assert gpus.health() == {}
    says('Field "mig.mode.current" is not a valid field to query.\n', 2)
    assert gpus.health() == {}


def test_links_and_clients(says):
    says("matrix")
    assert gpus.topology("-m") == "matrix"
    says("matrix", 1)
    assert gpus.topology("-m") == ""
    says("12, GPU-a, 4000\n13, GPU-b, [N/A]\n[N/A], GPU-b, 9000\nNo running processes found\n")
    assert gpus.clients() == [(12, "GPU-a", 4000), (13, "GPU-b", 0)]
    says("Failed to initialize NVML: Unknown Error\n", 255)
    with pytest.raises(HostError, match=r"^nvidia-smi: Failed to initialize NVML: Unknown Error$"):
        gpus.clients()


@pytest.fixture
def used(monkeypatch):
    """MiB in use by GPU, of which pid 7 has all of GPU 1; nobody is named for the others. A test changes it."""
    now = {0: 0, 1: 0, 2: 0}
    monkeypatch.setattr(gpus, "query", lambda: {i: {"uuid": f"GPU-{i}", "used_mib": mib} for i, mib in now.items()})
    monkeypatch.setattr(gpus, "clients", lambda: [(7, "GPU-1", now[1])])
    monkeypatch.setattr(gpus.proc, "describe", lambda pid: f"pid {pid} (x)")
    return now


def test_what_holds_a_gpu_is_named_and_the_drivers_own_share_is_not(used, monkeypatch):
    used.update({0: gpus.IDLE_MIB, 1: gpus.IDLE_MIB + 1, 2: 9999})
    assert gpus.busy([0, 1]) == [f"GPU 1: pid 7 (x) with {gpus.IDLE_MIB + 1} MiB"]
    assert gpus.busy([0]) == []
    assert gpus.busy([2, 5]) == [
        "GPU 5 is not there: nvidia-smi lists 0, 1, 2",
        "GPU 2: 9999 MiB in use, and no process is named for it",
    ]
    monkeypatch.setattr(gpus, "clients", lambda: [(7, "GPU-2", 5000)])
    assert gpus.busy([2]) == ["GPU 2: pid 7 (x) with 5000 MiB; 4999 MiB in use, and no process is named for it"]


def test_the_wait_ends_when_the_gpus_are_free_and_names_the_holder_when_they_never_are(used, monkeypatch):
    used[1] = 9999
    seconds, notes = itertools.count(), []
    monkeypatch.setattr(gpus.time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(gpus.time, "sleep", lambda s: used.update({1: 0}) if len(notes) == 3 else None)
    gpus.wait_free([1], 99, note=notes.append)
    assert notes == ["GPU 1: pid 7 (x) with 9999 MiB"] * 3
    used[1] = 9999
    notes.clear()
    with pytest.raises(HostError, match=r"not free after 5 s: GPU 1: pid 7 \(x\) with 9999 MiB"):
        gpus.wait_free([0, 1], 5)
    gpus.wait_free([0, 2], 0)
