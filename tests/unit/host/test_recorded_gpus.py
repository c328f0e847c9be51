"""What the host library reads out of what real tools printed (tests/recordings/gpus)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import commands, gpus, topology
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import gpus as checks

FOLDER = Path(__file__).parents[2] / "recordings" / "gpus" / "2x-h200"
UUIDS = [f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in (0, 1)]


def text(name):
    return (FOLDER / name).read_text()


# The fields of the recorded tables.
TABLES = {
    "query-gpu.csv": ["index", "uuid", "name", "memory.total", "memory.used", "compute_cap", "driver_version"],
    "query-health.csv": [
        *("index", "pci.bus_id", "persistence_mode", "mig.mode.current", "ecc.errors.uncorrected.volatile.total"),
        *("pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max"),
    ],
}


def columns(fields):
    """What was recorded of some fields, as one table."""
    recorded = {}
    for name, names in TABLES.items():
        rows = [line.split(", ") for line in text(name).splitlines()]
        recorded.update(zip(names, zip(*rows, strict=True), strict=True))
    return "".join(", ".join(row) + "\n" for row in zip(*[recorded[field] for field in fields], strict=True))


@pytest.fixture
def recorded(monkeypatch):
    """nvidia-smi and the kernel's log, as recorded."""

    def run(argv, check=True):
        line = " ".join(argv)
        if line.startswith("journalctl -k"):
            return subprocess.CompletedProcess(argv, 0, text("kernel-log.txt"), "")
        if "--query-gpu=" in line:
            return subprocess.CompletedProcess(argv, 0, columns(argv[1].partition("=")[2].split(",")), "")
        name = next(
            name
            for words, name in {
                "topo -m": "topo-m.txt",
                "topo -p2p r": "topo-p2p-r.txt",
                "compute-apps": "query-compute-apps.csv",
            }.items()
            if words in line
        )
        return subprocess.CompletedProcess(argv, 0, text(name), "")

    monkeypatch.setattr(gpus, "run", run)
    monkeypatch.setattr(commands, "run", run)


def test_gpus_and_their_memory(recorded):
    found = gpus.query()
    assert sorted(found) == [0, 1]
    assert found[1] == {
        "uuid": UUIDS[1],
        "name": "NVIDIA H200",
        "total_mib": 143771,
        "used_mib": 1131,
        "compute_capability": "9.0",
        "driver": "580.159.04",
        "place": "0000:00:07.0",
        "warnings": [],
    }


def test_who_holds_memory(recorded):
    assert gpus.clients() == [(29392, UUIDS[0], 1634), (29392, UUIDS[1], 1122)]
    assert any("29392" in line and "1122 MiB" in line for line in gpus.busy([1]))


def test_health_of_sound_gpus_is_no_finding(recorded):
    class Subject:
        claimed = gpus.query()
        gpu_health = gpus.health()

    Subject.gpus = Subject.claimed
    assert Subject.gpu_health[1]["pcie.link.width.current"] == "16"
    assert [(item["passed"], item["evidence"]) for item in checks.health(Subject)] == [(True, {"pcie": ["5.0 x16"]})]
    assert checks.xids(Subject) == []  # lines of the driver that are no Xid


def test_a_field_that_the_driver_does_not_know_gives_no_health(monkeypatch):
    answer = subprocess.CompletedProcess([], 2, text("query-unknown-field.txt"), "")
    monkeypatch.setattr(gpus, "run", lambda argv, check=True: answer)
    assert gpus.health() == {}


def test_links_between_gpus(recorded):
    assert topology.pairs(topology.matrix(gpus.topology("-m")), [0, 1]) == {(0, 1): "NV18"}
    assert topology.pairs(topology.matrix(gpus.topology("-p2p", "r")), [0, 1]) == {(0, 1): "OK"}
