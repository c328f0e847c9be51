"""The test hosts themselves: other tests rely on what is asserted here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.conftest import BootHosts, LookInto, WriteInventory
from tests.testbed import CommandFailed, Host, HostDegraded, Testbed, TestbedError, cgroups, network, process, runs
from tests.testbed.__main__ import main
from tests.testbed.machine import cache_folder

REPOSITORY = Path(__file__).parents[2]

# a range that no router anywhere forwards, should a packet ever get out
OUTSIDE = "240.0.0.1"


def start_other_run() -> tuple[subprocess.Popen[str], Path]:
    """Another process that has booted a host, and the root folder of that host."""
    script = (
        "import signal\n"
        # A job in the background of a shell ignores it, and so do its children.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from tests.testbed import Testbed\n"
        "print(Testbed('other').boot('other').root, flush=True)\n"
        "signal.pause()\n"
    )
    command = [sys.executable, "-c", script]
    other = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    return other, Path(other.stdout.readline().strip())


def ping(source: Host, target: Host) -> bool:
    return source.run(["ping", "-c", "1", "-W", "1", target.ip], check=False).returncode == 0


@pytest.mark.failure("8.15")
def test_8_15_a_host_runs_systemd_and_is_reached_over_ssh(host: Host, infra: LookInto) -> None:
    seen = infra(host)
    assert seen.check_output("systemctl is-system-running") == "running"
    assert seen.check_output("hostname") == host.name
    assert seen.service("ssh").is_running
    assert seen.process.get(pid=1).comm == "systemd"
    assert seen.system_info.codename == "bookworm"


def test_plain_ssh_needs_nothing_of_the_users_own(host: Host, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    result = subprocess.run(
        [*host.ssh_command(), "cat /etc/hostname"], env=environment, capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.stderr) == (f"{host.name}\n", "")


def test_ansible_reaches_hosts_by_the_inventory(hosts: BootHosts, inventory: WriteInventory) -> None:
    path = inventory(hosts(2), variables={"colour": "blue"}, host_variables={"gpu2": {"colour": "red"}})
    ansible = Path(sys.executable).with_name("ansible")
    command = [
        str(ansible),
        "llm",
        "-i",
        str(path),
        "-m",
        "command",
        "-a",
        "echo {{ inventory_hostname }} is {{ colour }}",
    ]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "gpu1 is blue" in result.stdout
    assert "gpu2 is red" in result.stdout


def test_run_tells_what_a_command_did(host: Host) -> None:
    assert host.run("cat; id --name --user", input="typed\n", user="nobody").stdout == "typed\nnobody\n"
    assert host.run(["false"], check=False).returncode == 1
    with pytest.raises(CommandFailed, match="gpu1: `echo why >&2; exit 3` ended with 3:\nwhy"):
        host.run("echo why >&2; exit 3")


def test_every_host_has_shared_memory_of_its_own(hosts: BootHosts) -> None:
    first, second = hosts(2)
    first.run("echo mine > /dev/shm/servewright-testbed")
    assert second.run("ls /dev/shm").stdout == ""
    assert not Path("/dev/shm/servewright-testbed").exists()


def test_a_power_cut_keeps_the_disk_and_nothing_else(host: Host) -> None:
    identity = "cat /etc/machine-id; hostname; ip -4 -o address show eth0; ip -o link show eth0 | grep -o 'ether .*'"
    before = host.run(identity).stdout
    boot_id = host.run("cat /proc/sys/kernel/random/boot_id").stdout
    host.run("echo kept > /root/file; echo lost | tee /run/file /tmp/file /dev/shm/file")
    host.run("systemd-run --quiet --unit=busy --property=ExecStop='touch /root/stopped' sleep infinity")

    host.power_cut()
    assert not host.is_on()
    assert (host.root / "root/file").read_text() == "kept\n"
    with pytest.raises(TestbedError, match="gpu1 is off"):
        host.run("true")

    host.boot()
    assert host.run(identity).stdout == before
    assert host.run("cat /proc/sys/kernel/random/boot_id").stdout != boot_id
    assert (
        host.run("cat /root/file; ls /root/stopped /run/file /tmp/file /dev/shm/file", check=False).stdout == "kept\n"
    )
    assert host.run("systemctl is-active busy", check=False).stdout == "inactive\n"


def test_a_host_that_reboots_comes_back(host: Host) -> None:
    host.run("systemd-run --quiet --unit=busy --property=ExecStop='touch /root/stopped' sleep infinity")
    host.reboot()
    host.run("test -e /root/stopped")
    assert host.run("systemctl is-active busy", check=False).stdout == "inactive\n"
    assert subprocess.run([*host.ssh_command(), "true"], check=False).returncode == 0


def test_hosts_see_each_other_until_the_cable_is_pulled(hosts: BootHosts) -> None:
    first, second = hosts(2)
    assert ping(first, second)
    second.network_off()
    assert not ping(first, second)
    assert second.run("hostname").stdout == "gpu2\n"
    second.network_on()
    assert ping(first, second)


def test_nothing_outside_can_be_reached(host: Host) -> None:
    connect = f"import socket; socket.create_connection(('{OUTSIDE}', 80))"
    assert "No route to host" in host.run(["python3", "-c", connect], check=False).stderr
    # programs find out their own address by the default route, so there must be one
    assert f"src {host.ip}" in host.run(f"ip route get {OUTSIDE}").stdout


def test_a_new_host_is_clean(testbed: Testbed) -> None:
    first = testbed.boot("again")
    first.run("touch /root/file")
    testbed.destroy(first)
    assert not first.root.exists()
    second = testbed.boot("again")
    assert second.run("ls /root").stdout == ""
    testbed.destroy(second)


def test_files_can_be_there_before_the_boot_and_folders_shared_read_only(hosts: BootHosts, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("shared\n")

    def prepare(root: Path) -> None:
        (root / "srv/file").write_text("prepared\n")

    host = hosts(1, binds={tmp_path: "/mnt/a:b"}, prepare=prepare)[0]
    assert host.run("cat /srv/file /mnt/a:b/file").stdout == "prepared\nshared\n"
    assert "Read-only" in host.run("touch /mnt/a:b/file", check=False).stderr


def test_limits_of_units_hold(host: Host) -> None:
    if not cgroups.machine_runs_systemd() and "memory" not in cgroups.controllers_for_hosts():
        pytest.skip("this machine hands no memory controller down to hosts")
    unit = ["systemd-run", "--quiet", "--wait", "--property=MemoryMax=20M", "--property=MemorySwapMax=0"]
    assert host.run([*unit, "python3", "-c", "bytearray(5 << 20)"], check=False).returncode == 0
    assert host.run([*unit, "python3", "-c", "bytearray(100 << 20)"], check=False).returncode != 0


def test_a_failed_unit_fails_the_boot(testbed: Testbed) -> None:
    def prepare(root: Path) -> None:
        unit = root / "etc/systemd/system/broken.service"
        unit.write_text("[Service]\nType=oneshot\nExecStart=/bin/false\n")
        wants = root / "etc/systemd/system/multi-user.target.wants"
        (wants / "broken.service").symlink_to("../broken.service")

    with pytest.raises(HostDegraded, match=r"(?s)bad is degraded.*broken\.service"):
        testbed.boot("bad", prepare=prepare)
    assert [host.name for host in testbed.hosts] == []


def test_what_a_killed_run_left_is_removed_and_a_living_run_is_not_touched(host: Host) -> None:
    other, root = start_other_run()
    other.kill()
    other.wait()
    assert process.container_of(root) is not None

    with Testbed("next"):
        assert process.container_of(root) is None
        assert not root.exists()
    assert host.run("hostname").stdout == "gpu1\n"
    assert host.root.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_run_that_is_told_to_end_takes_its_hosts_with_it(number: signal.Signals) -> None:
    other, root = start_other_run()
    other.send_signal(number)
    assert other.wait(timeout=60) == -number
    assert process.container_of(root) is None
    assert not root.exists()
    names = {run.name for run in runs.living(cache_folder())}
    assert root.parents[2].name not in names


def test_two_runs_have_networks_of_their_own(host: Host) -> None:
    with Testbed("second") as testbed:
        other = testbed.boot("gpu1")
        assert other.ip != host.ip
        assert not ping(host, other)
        assert subprocess.run([*other.ssh_command(), "true"], check=False).returncode == 0
    assert subprocess.run([*host.ssh_command(), "true"], check=False).returncode == 0


def test_a_range_that_is_taken_is_an_error_that_says_what_to_do(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = IPv4Network(f"{host.ip}/24", strict=False)
    monkeypatch.setenv("SERVEWRIGHT_TEST_NETWORK", str(taken))
    monkeypatch.setattr(sys, "argv", ["testbed", "up", "gpu1"])
    assert main() == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: no free network for test hosts in {taken}")
    assert "SERVEWRIGHT_TEST_NETWORK" in error
    assert error.count("\n") == 1


def test_without_root_the_error_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["testbed", "image"])
    assert main() == 1
    assert capsys.readouterr().err.startswith("error: the test hosts need root")


@pytest.mark.parametrize("text", ["10.213.0.0/25", "8.8.0.0/16", "elsewhere"])
def test_a_range_that_cannot_be_used_is_an_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVEWRIGHT_TEST_NETWORK", text)
    with pytest.raises(TestbedError, match=f"SERVEWRIGHT_TEST_NETWORK={text}"):
        network.pool()


@pytest.mark.parametrize(
    ("addresses", "routes", "taken"),
    [
        ([], [], None),
        ([], [{"dst": "default", "dev": "eth0"}], None),
        ([], [{"dst": "0.0.0.0/1", "dev": "tun0"}], None),
        ([], [{"dst": "10.0.0.0/8", "dev": "tun0"}], "route to 10.0.0.0/8 by tun0"),
        ([], [{"type": "unreachable", "dst": "10.213.7.0/24"}], "route to 10.213.7.0/24"),
        ([("eth0", "10.213.7.9", 32)], [], "interface eth0 has 10.213.7.9/32"),
        ([("eth0", "10.213.6.9", 24)], [], None),
    ],
)
def test_what_takes_a_network(
    addresses: list[tuple[str, str, int]], routes: list[dict[str, Any]], taken: str | None
) -> None:
    interfaces = [
        {"ifname": name, "addr_info": [{"local": local, "prefixlen": bits}]} for name, local, bits in addresses
    ]
    assert network.taken_by(IPv4Network("10.213.7.0/24"), interfaces, routes) == taken


V1 = "34 25 0:29 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V2 = "25 20 0:22 {root} /sys/fs/cgroup{below} rw - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("membership", "mountinfo", "folders"),
    [
        ("0::/user.slice/a.scope\n", V2.format(root="/", below=""), ["/sys/fs/cgroup/user.slice/a.scope"]),
        (
            "4:memory:/jobs/1\n0::/\n",
            V1.format(root="/") + V2.format(root="/", below="/unified"),
            ["/sys/fs/cgroup/memory/jobs/1", "/sys/fs/cgroup/unified"],
        ),
        # a container whose runtime mounts its own part of the hierarchy only
        ("4:memory:/docker/1/a\n", V1.format(root="/docker/1"), ["/sys/fs/cgroup/memory/a"]),
        # a hierarchy that is not mounted
        ("5:pids:/\n4:memory:/\n", V1.format(root="/"), ["/sys/fs/cgroup/memory"]),
    ],
    ids=["v2", "v1-and-v2", "container", "not-mounted"],
)
def test_where_the_own_control_groups_are(membership: str, mountinfo: str, folders: list[str]) -> None:
    assert [str(folder) for folder in cgroups.own_cgroups(membership, mountinfo)] == folders
