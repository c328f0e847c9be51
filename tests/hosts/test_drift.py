"""Drift: each row of a table of mutations is found, alone, and mended; nothing is restarted without leave."""

from __future__ import annotations

import json
import struct

import pytest

from tests.hosts.commands import Library, invocation, rendered, service
from tests.hosts.mutations import MODEL, PACKAGES, RELEASE, TABLE

# Little is asked of what serves: what the gates find is the matter of other tests.
VERIFY = {**service()["verify"], "stable": 0, "stall_timeout": 30, "burst": {"requests": 0}, "long_prompt": 0}
NCCL = {"NCCL_P2P_LEVEL": "SYS", "NCCL_PROTO": "LL"}
# What a test host does not have: a driver, an IOMMU, a bridge with ACS, settings of the kernel of its own.
HARDWARE = r"""
set -e
mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia
echo 'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build' > /proc/driver/nvidia/version
ln -s libcuda.so.580.95.05 /usr/lib/x86_64-linux-gnu/libcuda.so.1
for version in 580.95.05 580.105.08 590.1.1; do : > /usr/lib/x86_64-linux-gnu/libcuda.so.$version; done
mount -t tmpfs none /sys/kernel/iommu_groups && mkdir /sys/kernel/iommu_groups/0
echo identity > /sys/kernel/iommu_groups/0/type
mount -t tmpfs none /sys/bus/pci/devices && mkdir /sys/bus/pci/devices/0000:40:01.1
echo 0x060400 > /sys/bus/pci/devices/0000:40:01.1/class
cp /root/config /sys/bus/pci/devices/0000:40:01.1/config
echo 0 > /root/overcommit && mount --bind /root/overcommit /proc/sys/vm/overcommit_memory
"""


@pytest.fixture(scope="module")
def boot(testbed, simulator):
    """Boots a host with one deployed service, in place of the one before."""
    hosts = []

    def prepare(root):
        simulator(root)
        extra = root / PACKAGES.lstrip("/") / "extra"
        extra.mkdir()
        (extra / "__init__.py").touch()
        # PCI configuration space: ACS (0x000D) is the first extended capability, its control register zero.
        space = bytearray(4096)
        struct.pack_into("<IHH", space, 0x100, 0x0001000D, 0x7F, 0)
        (root / "root/config").write_bytes(space)
        (root / "etc/token").write_text("canary\n")
        # As OpenSSL's libraries: libcrypto.so.1.1.1k.
        library = root / "usr/lib/x86_64-linux-gnu/libz.so.1"
        library.with_name("libz.so.1.2.13").rename(library.with_name("libz.so.1.2.13k"))
        library.unlink()
        library.symlink_to("libz.so.1.2.13k")

    def boot():
        while hosts:
            testbed.destroy(hosts.pop())
        host = testbed.boot("drift", prepare=prepare)
        hosts.append(host)
        host.run(HARDWARE)
        library = Library(host)
        declared = service(
            environment={"SIM_LOAD_SECONDS": "0.1", "SIM_LIFE_SCALE": "0.1"},
            secrets={"HF_TOKEN": {"file": "/etc/token"}},
            verify=VERIFY,
            watch={"every": 86400},
            limits={"stop_timeout": 10, "gpu_wait": 20, "start_timeout": 60, "restart_delay": 1, "restart_burst": 100},
        )
        assert library.deploy(rendered(declared, NCCL))["verdict"] == "committed"
        # A copy for the tests, as a module has its own: one of the mutations removes the host's.
        library.path = "/root/library.pyz"
        host.run(f"cp /usr/local/lib/servewright/host.pyz {library.path}")
        return library

    yield boot
    while hosts:
        testbed.destroy(hosts.pop())


@pytest.fixture(scope="module")
def kept():
    """The library of the host that the mutations before have left healthy, if one has."""
    return []


@pytest.fixture
def library(boot, kept):
    """One host for all mutations in turn; a test that fails leaves a new one to the next."""
    library = kept.pop() if kept else boot()
    yield library
    if look(library)["verdict"] == "ok":
        kept.append(library)


def look(library):
    (found,) = library.call("drift", ["kimi"])
    return found


def repair(library, allow_restart=False):
    (found,) = library.call("drift", ["kimi"], True, allow_restart, "tester", "a test")
    return library.settle(found)


def ids(found):
    return {one["id"] for one in found["findings"]}


@pytest.mark.failure("6.10", "6.11")
@pytest.mark.parametrize("mutation", TABLE, ids=[mutation.name for mutation in TABLE])
def test_a_mutation_is_found_alone_and_mended(library, mutation):
    before = invocation(library.host)
    library.host.run(mutation.command)
    changed = invocation(library.host)
    assert (changed != before) <= mutation.by_itself

    found = look(library)
    assert ids(found) == mutation.finds, json.dumps(found, indent=1)
    text = "\n".join(line for one in found["findings"] for line in one["evidence"])
    assert mutation.evidence in text, text
    assert "canary" not in json.dumps(found)
    assert all(one["consequence"] and one["repair"] and one["service"] == "kimi" for one in found["findings"])
    needs_restart = any(one["needs_restart"] for one in found["findings"])
    assert needs_restart == mutation.restarts

    if mutation.by_hand:
        assert repair(library)["verdict"] == "drift"
        library.host.run(mutation.by_hand)
    mended = repair(library, allow_restart=mutation.restarts)
    assert mended["verdict"] in ("mended", "committed", "ok"), json.dumps(mended, indent=1)
    again = look(library)
    assert (again["verdict"], again["findings"]) == ("ok", []), json.dumps(again, indent=1)
    if not mutation.by_hand:
        assert (invocation(library.host) != changed) == mutation.restarts
    elif not mutation.restarts:
        assert invocation(library.host) == changed


def test_nothing_is_stopped_for_a_release_whose_secrets_are_lost(library):
    """A restart is due for another reason, and allowed; the start after the stop could not succeed."""
    before = invocation(library.host)
    library.host.run(f"mv {RELEASE}/environment /root/ && touch {MODEL}/more")
    found = repair(library, allow_restart=True)
    assert ids(found) == {"release.damaged", "model.files"}
    assert (found["verdict"], f"{RELEASE}/environment is missing" in found["message"]) == ("refused", True), found
    assert invocation(library.host) == before
    library.host.run(f"mv /root/environment {RELEASE}/ && rm {MODEL}/more")
    assert look(library)["verdict"] == "ok"


def test_a_variable_that_systemd_is_configured_with_is_named_and_nothing_is_stopped_for_it(library):
    """systemctl unset-environment does nothing for it, and the gates would fail every start that has it."""
    before, conf = invocation(library.host), "/etc/systemd/system.conf.d/zz.conf"
    text = r"[Manager]\nDefaultEnvironment=SITE=1 LC_TIME=C\n"
    library.host.run(f"mkdir -p $(dirname {conf}) && printf '{text}' > {conf}")
    library.host.run(f"touch {MODEL}/more && systemctl daemon-reexec")
    found = repair(library)
    assert ids(found) == {"host.manager_environment", "model.files"}
    assert "host.manager_environment could not be undone: systemctl unset-environment" in found["message"]
    refused = repair(library, allow_restart=True)
    assert (refused["verdict"], "that are not declared: SITE" in refused["message"]) == ("refused", True), refused
    assert invocation(library.host) == before
    # A locale is no difference.
    again = "systemctl daemon-reexec && systemctl restart kimi"
    library.host.run(f"sed -i s/SITE=1// {conf} && rm {MODEL}/more && {again}")
    assert library.call("verify", "kimi")["verdict"] == "ok"
    library.host.run(f"rm {conf} && {again}")
    assert look(library)["verdict"] == "ok"


def test_what_is_moved_aside_is_kept_under_its_old_path(library):
    path = "/etc/systemd/system/kimi.service.d/mine.conf"
    for text in ("one", "two"):
        library.host.run(f"mkdir -p $(dirname {path}) && echo '# {text}' > {path} && chmod 0640 {path}")
        assert repair(library)["verdict"] == "mended"
    library.host.run(f"mkdir -p $(dirname {path}) && ln -s /dev/null {path}")
    assert repair(library)["verdict"] == "mended"
    aside = f"/etc/servewright/kimi/releases/1/set-aside{path}"
    kept = library.host.run(f"cat {aside} {aside}.2; readlink {aside}.3; stat -c %a {aside}").stdout
    assert kept == "# one\n# two\n/dev/null\n640\n"
    assert library.host.run(f"ls $(dirname {path})", check=False).returncode != 0


def test_what_another_version_has_written_is_no_drift(library, monkeypatch):
    monkeypatch.setattr(library, "path", "/root/another")
    library.host.run(
        "cp /usr/local/lib/servewright/host.pyz /root/a.zip && rm -rf /root/another"
        " && python3 -m zipfile -e /root/a.zip /root/another && cd /root/another/servewright_host"
        " && sed -i 's/# Written by servewright./# Written by another servewright./' library.py timers.py"
    )
    assert look(library)["findings"] == []
    # A version that kept no record of what it wrote.
    library.host.run("rm /var/lib/servewright/.installed.json /var/lib/servewright/kimi/watch.json")
    assert look(library)["findings"] == []
    library.host.run("systemctl stop servewright-watch-kimi.timer; rm /etc/systemd/system/servewright-recover.service")
    assert ids(look(library)) == {"watch.timer", "host.recovery"}
    assert repair(library)["verdict"] == "mended"
    assert "another" in library.host.run("cat /etc/systemd/system/servewright-watch-kimi.timer").stdout
    monkeypatch.undo()
    assert look(library)["findings"] == []
