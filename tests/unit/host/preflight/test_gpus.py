"""The claimed GPUs, and the way between them."""

from __future__ import annotations

import struct

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import commands, proc, topology
from ansible_collections.servewright.llm.plugins.module_utils.host import gpus as nvidia
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import gpu_facts, gpus
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import topology as links
from ansible_collections.servewright.llm.plugins.module_utils.host.surroundings import pci
from tests.unit.host.preflight.conftest import said


@pytest.mark.failure("2.13")
@pytest.mark.parametrize(("text", "repair"), [*gpu_facts.NVML_FAILURES, ("something new", "")])
def test_2_13_a_driver_that_fails_is_fatal_with_the_repair_for_what_it_says(subject, text, repair):
    found = subject(gpus=1, host={"gpus": 8})
    found.__dict__["_gpus"] = ({}, f"nvidia-smi: Failed: {text}: more")
    assert said(gpus.driver(found)) == [("fatal", f"nvidia-smi: Failed: {text}: more", repair)]
    assert gpus.claim(found) == gpus.as_declared(found) == gpus.health(found) == gpus.xids(found) == []
    cpu = subject()
    cpu.__dict__["_gpus"] = found.__dict__["_gpus"]
    assert gpus.driver(cpu) == []
    assert said(gpus.driver(subject(gpus=2))) == [("ok", "2 GPUs, driver 580.95", "")]


@pytest.fixture
def clients(subject, monkeypatch):
    """Findings of the claim on two GPUs with these processes (pid, GPU, MiB); 11 is the service's own, 12 a stray."""

    def look(*processes, used=0, gpus_there=2):
        monkeypatch.setattr(nvidia, "clients", lambda: [(pid, f"GPU-{gpu}", mib) for pid, gpu, mib in processes])
        units = {11: "tiny.service", 13: "other.service", 14: "session-1.scope"}
        monkeypatch.setattr(proc, "unit", lambda pid: units.get(pid, ""))
        monkeypatch.setattr(proc, "describe", lambda pid: f"pid {pid} (x)")
        found = subject(gpus=2)
        found.__dict__["_strays"] = {12: "proof"}
        for gpu in found.gpus.values():
            gpu["used_mib"] = used
        for index in range(gpus_there, 2):
            del found.gpus[index]
        return gpus.claim(found)

    return look


def test_who_holds_a_claimed_gpu_is_named_with_unit_and_memory(clients):
    assert clients((11, 0, 4000), (12, 1, 4000), (13, 5, 4000), used=4000) == []
    (found,) = clients((13, 1, 4000), used=4000)[:1]
    assert said([found]) == [
        ("fatal", "GPU 1 is held by pid 13 (x) with 4000 MiB",
         "claim other GPUs, or stop it for good (systemctl disable --now other.service)")
    ]
    assert found["evidence"] == {"pid": 13, "unit": "other.service", "gpu": 1, "mib": 4000}
    for pid in (14, 15):
        assert said(clients((pid, 0, 9), used=9)) == [
            ("fatal", f"GPU 0 is held by pid {pid} (x) with 9 MiB", "claim other GPUs, or end that process")
        ]


def test_memory_that_nobody_is_named_for_is_a_warning(clients):
    assert clients(used=1024) == []
    message = "1025 MiB of GPU 1 are in use, and no process is named for it"
    assert said(clients(used=1025))[1][:2] == ("warning", message)
    assert "containers" in said(clients(used=1025))[1][2]
    assert [row[1][:8] for row in said(clients((11, 0, 1), (11, 0, 1), used=1026))] == ["1026 MiB"]


def test_a_claimed_gpu_that_is_not_there(clients):
    assert said(clients(gpus_there=1)) == [
        ("fatal", "GPU 1 is not there; nvidia-smi lists 0",
         "claim GPUs that are there; a GPU that has gone needs a reboot")
    ]
    assert "nvidia-smi lists none" in said(clients(gpus_there=0))[0][1]


@pytest.mark.parametrize(
    ("declared", "message", "repair"),
    [
        ({}, "", ""),
        ({"gpus": 2, "gpu_model": "NVIDIA H200", "compute_capability": "9.0"}, "", ""),
        ({"gpus": 3}, "nvidia-smi lists 2 GPUs, servewright_host declares 3", "needs a reboot"),
        ({"gpus": 1}, "nvidia-smi lists 2 GPUs, servewright_host declares 1", "correct servewright_host"),
        ({"gpu_model": "B200"}, "GPU 0 is 'NVIDIA H200', servewright_host.gpu_model declares 'B200'", "correct"),
        ({"compute_capability": "10.0"}, "GPU 0 is '9.0', servewright_host.compute_capability", "correct"),
    ],
)
def test_gpus_against_what_the_host_declares(subject, declared, message, repair):
    found = said(gpus.as_declared(subject(gpus=2, host=declared)))
    assert {row[0] for row in found} == ({"fatal"} if message else set())
    assert message in "".join(row[1] for row in found)
    assert all(repair in row[2] for row in found)


def test_a_gpu_that_the_driver_has_bound_and_nvidia_smi_does_not_list(subject, monkeypatch):
    monkeypatch.setattr(gpus.os.path, "isdir", lambda path: path == "/proc/driver/nvidia/gpus")
    found = subject(gpus=2)
    monkeypatch.setattr(gpus.os, "listdir", lambda path: ["a", "b", "c"])
    message = "the driver has bound 3 GPUs, nvidia-smi lists 2: one has fallen off the bus"
    assert said(gpus.as_declared(found)) == [("fatal", message, "reboot the host, then look at its seat and power")]
    monkeypatch.setattr(gpus.os, "listdir", lambda path: ["a", "b"])
    assert gpus.as_declared(found) == []


WELL = {
    "persistence_mode": "Enabled",
    "mig.mode.current": "[N/A]",
    "ecc.errors.uncorrected.volatile.total": "0",
    "pcie.link.gen.max": "5",
    "pcie.link.width.current": "16",
    "pcie.link.width.max": "16",
}


@pytest.mark.parametrize(
    ("field", "value", "message", "repair"),
    [
        ("ecc.errors.uncorrected.volatile.total", "2", "GPU 1 has 2 uncorrected memory errors", "have it replaced"),
        ("ecc.errors.uncorrected.volatile.total", "[N/A]", "", ""),
        ("pcie.link.width.current", "8", "GPU 1 runs with 8 of 16 PCIe lanes", "look at its slot"),
        ("pcie.link.width.current", "[N/A]", "", ""),
        ("pcie.link.width.max", "[N/A]", "", ""),
        ("pcie.link.gen.max", "4", "GPU 1 has PCIe generation 4, others have 5", "look at its slot"),
        ("pcie.link.gen.max", "[N/A]", "", ""),
        ("persistence_mode", "Disabled", "GPU 1 has no persistence mode", "systemctl enable --now nvidia-persistenced"),
        ("persistence_mode", "[N/A]", "", ""),
        ("mig.mode.current", "Enabled", "GPU 1 is divided (MIG)", "turn MIG off"),
        ("mig.mode.current", "Disabled", "", ""),
    ],
)
def test_the_health_of_a_gpu(subject, field, value, message, repair):
    found = gpus.health(subject(gpus=2, health={0: WELL, 1: {**WELL, field: value}, 2: {**WELL, field: value}}))
    wrong = [item for item in found if not item["passed"]]
    assert len(wrong) == bool(message)
    for severity, text, what in said(wrong):
        assert (severity, message in text, repair in what) == ("warning", True, True)
        assert wrong[0]["evidence"] == {"gpu": 1}


def test_a_gpu_that_nvidia_smi_warns_of_is_a_warning_and_no_failure_of_the_driver(subject):
    found = subject(gpus=2)
    found.gpus[1]["warnings"] = ["WARNING: infoROM is corrupted at gpu 0000:02:00.0"]
    message = "GPU 1: nvidia-smi says 'WARNING: infoROM is corrupted at gpu 0000:02:00.0'"
    assert said(gpus.health(found)) == [("warning", message, gpu_facts.INFOROM)]
    assert [row[0] for row in said(gpus.driver(found))] == ["ok"]


def test_the_width_and_generation_of_the_links_are_shown(subject):
    (found,) = gpus.health(subject(gpus=2, health={0: WELL, 1: WELL}))
    assert (found["severity"], found["evidence"]) == ("ok", {"pcie": ["5.0 x16"]})
    assert gpus.health(subject(gpus=2)) == []  # a driver that does not know the fields


def test_hardware_errors_of_the_claimed_gpus_in_the_kernel_log(subject, monkeypatch):
    log = """NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:01:00): 79, again
NVRM: Xid (PCI:0000:01:00): 31, pid=3134, name=python, MMU Fault
NVRM: Xid (PCI:0000:41:00): 95, not claimed
NVRM: Xid (PCI:0000:99:00): 48, of a GPU that is not listed any more
usb 1-1: new device"""
    done, asked = type("Done", (), {"stdout": log}), []
    monkeypatch.setattr(commands, "run", lambda argv, **options: asked.append(argv) or done)
    found = subject(gpus=2)  # of a driver that tells no health
    found.gpus[1]["place"] = "0000:41:00.0"
    found.release["gpus"] = [0]
    seen = gpus.xids(found)
    assert said(seen) == [
        ("warning", "GPU 0 had Xid 79 (GPU has fallen off the bus) 2 times since the boot",
         "reboot, then look at its seat and power"),
        ("warning", "a GPU at 0000:99:00 had Xid 48 (double bit ECC error) 1 times since the boot",
         "reset or reboot; when it comes again, have the GPU replaced"),
    ]  # fmt: skip
    assert seen[0]["evidence"] == {"last": "again"}
    assert f"-n {gpus.LOG_LINES}" in " ".join(asked[0])
    monkeypatch.setattr(gpus, "LOG_LINES", 6)
    assert "2 times in the last 6 lines of the kernel log" in said(gpus.xids(found))[0][1]


def matrix(word):
    return f"\tGPU0\tGPU1\tGPU2\nGPU0\t X \t{word}\tSYS\nGPU1\t{word}\t X \tSYS\nGPU2\tSYS\tSYS\t X \n"


@pytest.mark.parametrize(
    ("word", "declared", "message", "repair"),
    [
        ("NV18", "nvlink", "", ""),
        ("PIX", "pcie", "", ""),
        ("PIX", None, "", ""),
        ("PIX", "nvlink", "GPUs 0 and 1 are linked by PIX, servewright_host declares nvlink", "NVLink bridges"),
        ("NV4", "pcie", "the GPUs are linked by NVLink, servewright_host declares pcie", "correct servewright_host"),
    ],
)
def test_links_against_what_the_host_declares(subject, monkeypatch, word, declared, message, repair):
    monkeypatch.setattr(nvidia, "topology", lambda *words: matrix("OK"))
    (found,) = links.links(subject(gpus=2, links=matrix(word), host={"interconnect": declared}))
    assert found["evidence"]["links"] == [word]
    assert (found["severity"], message in found["message"]) == ("fatal" if message else "ok", True)
    assert repair in found["repair"]
    if not message:
        assert found["evidence"]["p2p"] == ["OK"]
    assert links.links(subject(gpus=1, links=matrix(word), host={"interconnect": "nvlink"})) == []
    assert links.links(subject(gpus=2, links="", host={"interconnect": "nvlink"})) == []  # a driver that tells nothing


# Registers of bridges: (what it can, what is on). 0x1D: source validation and the three that redirect or forward.
CLEAR, ON, UNABLE, VALIDATES = (0x5F, 0), (0x5F, 0x1D), (0x13, 0x11), (0x5F, 0x01)


@pytest.fixture
def host(subject, monkeypatch, tmp_path):
    """Findings of P2P on a host: the IOMMU's treatment, registers of its one bridge, kernel's command line."""

    def look(iommu, bridge, cmdline=(), above=("0000:00:01.1",), word="PIX", gpus=2, **environment):
        places = ["0000:01:00.0", "0000:02:00.0"]
        monkeypatch.setattr(topology, "upstream", lambda found: set(above) if found == places else None)
        monkeypatch.setattr(topology, "iommu", lambda found: iommu if found == places else None)
        monkeypatch.setattr(pci, "bridges", lambda: {"0000:00:01.1": bridge} if bridge else {})
        monkeypatch.setattr(links, "_CMDLINE", str(tmp_path / "cmdline"))
        (tmp_path / "cmdline").write_text(" ".join(["root=/dev/sda", *cmdline, "quiet\n"]))
        return links.peer_to_peer(subject(gpus=gpus, links=matrix(word), environment=environment))

    return look


@pytest.mark.failure("3.1", "3.2")
@pytest.mark.parametrize(
    ("iommu", "bridge", "cmdline", "severity", "message"),
    [
        ("translating", ON, (), "fatal", "the IOMMU translates and 1 PCIe bridges redirect (ACS, 0000:00:01.1)"),
        ("translating", CLEAR, ("pci=disable_acs_redir=x",), "warning", "the IOMMU translates addresses"),
        ("translating", None, (), "warning", "the IOMMU translates addresses"),
        ("passthrough", ON, (), "warning", "1 PCIe bridges redirect P2P traffic (ACS, 0000:00:01.1)"),
        ("off", ON, (), "warning", "1 PCIe bridges redirect P2P traffic"),
        ("off", CLEAR, (), "ok", "IOMMU off, no bridge redirects"),
        ("passthrough", CLEAR, (), "warning", "ACS is off on 1 bridges (0000:00:01.1), but nothing on the kernel's"),
        ("passthrough", VALIDATES, (), "warning", "ACS is off on 1 bridges"),
        ("passthrough", CLEAR, ("pci=disable_acs_redir=x",), "ok", "IOMMU passthrough, no bridge redirects"),
        ("passthrough", CLEAR, ("iommu=pt",), "warning", "ACS is off on 1 bridges"),
        ("passthrough", UNABLE, (), "ok", "IOMMU passthrough, no bridge redirects"),
        ("passthrough", None, (), "ok", "IOMMU passthrough"),
    ],
)
def test_3_1_and_3_2_what_redirects_between_pcie_gpus(host, iommu, bridge, cmdline, severity, message):
    (found,) = host(iommu, bridge, cmdline)
    assert (found["severity"], message in found["message"]) == (severity, True)
    assert found["evidence"] == {"iommu": iommu, "acs_on": ["0000:00:01.1"] if bridge == ON else [],
                                 "cmdline": list(cmdline)}  # fmt: skip
    if severity != "ok":
        assert ("pci=disable_acs_redir" if "command line" in found["message"] else "iommu=pt") in found["repair"]


@pytest.mark.failure("3.1")
def test_3_1_only_bridges_above_the_gpus_count_and_only_where_p2p_goes_through_them(host):
    assert host("translating", ON, above=["0000:80:01.1"])[0]["severity"] == "warning"
    assert host("translating", ON, above=[])[0]["severity"] == "fatal"  # a kernel that lists no devices
    assert host("translating", ON, word="NV4") == []
    assert host("translating", ON, gpus=1) == []
    for off in ({"NCCL_P2P_DISABLE": "1"}, {"NCCL_P2P_LEVEL": "LOC"}, {"NCCL_P2P_LEVEL": "nvl"}):
        assert host("translating", ON, **off) == []
    assert host("translating", ON, NCCL_P2P_LEVEL="SYS")[0]["severity"] == "fatal"


def test_bridges_and_iommu_are_read_from_the_kernel(tmp_path, monkeypatch):
    """A GPU below a switch below a root port."""
    config = bytearray(4096)
    struct.pack_into("<IHH", config, 0x100, 0x000D, 0x5F, 0x1D)
    devices = tmp_path / "devices"
    devices.mkdir()
    below = tmp_path / "pci0000:00"
    for name, kind in (("0000:00:01.1", "0x060400"), ("0000:01:00.0", "0x060400"), ("0000:02:00.0", "0x030200")):
        below = below / name
        below.mkdir(parents=True)
        (below / "class").write_text(kind + "\n")
        (below / "config").write_bytes(config)
        (devices / name).symlink_to(below)
    (below / "iommu_group").mkdir()
    monkeypatch.setattr(topology, "_DEVICES", str(devices))
    monkeypatch.setattr(topology, "_GROUPS", str(tmp_path / "groups"))
    monkeypatch.setattr(pci, "DEVICES", str(devices))
    assert pci.bridges() == {"0000:00:01.1": (0x5F, 0x1D), "0000:01:00.0": (0x5F, 0x1D)}
    assert pci.acs() == {"0000:00:01.1": 0x1D, "0000:01:00.0": 0x1D}
    place = "0000:02:00.0"
    assert topology.upstream([place]) == {"0000:00:01.1", "0000:01:00.0"}
    assert topology.upstream(["0000:ff:00.0"]) == set()
    assert topology.iommu([place]) == "off"
    for kind, meaning in (("identity", "passthrough"), ("DMA-FQ", "translating")):
        (below / "iommu_group/type").write_text(kind + "\n")
        assert topology.iommu([place]) == meaning
    assert topology.iommu(["0000:ff:00.0"]) == "off"  # not listed: all groups, of which there are none
    (tmp_path / "groups/1").mkdir(parents=True)
    (tmp_path / "groups/1/type").write_text("DMA\n")
    assert topology.iommu(["0000:ff:00.0"]) == "translating"
    # No device at all is no proof that nothing translates.
    assert topology.iommu([]) == "translating"
