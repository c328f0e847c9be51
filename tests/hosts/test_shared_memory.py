"""Dead shared memory goes, and nothing that may be alive: on a host with services that share one user."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.hosts.commands import Library, rendered, service

SEGMENTS = Path(__file__).with_name("segments.py")
SMALL = {"environment": {"SIM_LOAD_SECONDS": "0.2"}}
CPU = {"gpus": [], "parallelism": {"tensor": 1}, "options": {"device": "cpu"}}
LIVE = rendered(service(name="live", user="llm-both", gpus=[0, 1], parallelism={"tensor": 2}, **SMALL))
NEIGHBOUR = rendered(service(name="neighbour", user="llm-both", listen={"port": 30001}, **CPU, **SMALL))
OWN = rendered(service(name="own", listen={"port": 30002}, **CPU, **SMALL))

# Segments of the user llm-own: name and whether it goes.
DEAD = {
    "psm_0a1b2c3d": "a size of 4 MiB",
    "sem.mp-abcdefgh": "",
    "sem.loky-123-abc": "",
    "nccl-AbCdEf": "",
    "torch_4711_1": "",
    "cuda.shm.3e7.12.1": "",
    "vllm_dist_00ff-tp:0-[0-1]-cpushm_0": "",
    "vllm_offload_0000.mmap": "20 GB, sparse",
    "VLLM_OBJECT_STORAGE_SHM_BUFFER_ab12": "",
    "lmcache-vllm-1": "",
    "sglang_loads_00ff_1.shm": "",
    "sgl_shm_mq_1_00ff00ff": "with the pid of systemd, which has not made it",
    "sgl_shm_mm_999999_00ff00ff": "",
}
HELD = ("mapped", "read_only", "opened", "semaphore", "namespace", "in_flight", "headless")
SPARED = {
    "notes": "an unknown name",
    "multi_tokenizer_args_1": "a live SGLang holds it nowhere",
    "psm_folder": "a folder",
    "psm_link": "a symbolic link",
    "psm_root": "root's",
    "psm_other": "another user's",
    "psm_young": "just made",
    **{f"psm_{kind}": f"held: {kind}" for kind in HELD},
}


@pytest.fixture(scope="module")
def library(testbed, simulator):
    """One host where `live` serves and `neighbour`, of the same user, and `own`, of its own, are down."""
    host = testbed.boot("shm", prepare=simulator)
    (host.root / "opt/segments.py").write_text(SEGMENTS.read_text())
    found = Library(host)
    for release in (LIVE, NEIGHBOUR, OWN):
        result = found.deploy(release)
        assert result["verdict"] == "committed", result
    host.run("systemctl stop neighbour own")
    yield found
    testbed.destroy(host)


def command(release, setting="ExecStartPre"):
    """A command of a unit, as systemd runs it."""
    (line,) = re.findall(rf"^{setting}=\+((?:.*\\\n)*.*)$", release["unit"], re.MULTILINE)
    return line.replace("\\\n", "")


def names(host):
    return set(host.run(["ls", "-A", "/dev/shm"]).stdout.split("\n")) - {""}


@pytest.fixture(scope="module")
def cleaned(library):
    """What was in /dev/shm before `own` was started, what is left, and what its log says."""
    host = library.host
    for kind in HELD:
        unit = f"--unit=hold-{kind} -p StandardOutput=file:/var/tmp/{kind}"
        host.run(
            f"systemd-run --quiet {unit} /usr/bin/python3 /opt/segments.py hold {kind} /dev/shm/psm_{kind} llm-own"
        )
        host.run(f"until grep -q held /var/tmp/{kind}; do sleep 0.05; done", timeout=20)
    dead = " ".join(DEAD)
    old = f"{dead} notes multi_tokenizer_args_1 psm_folder psm_link"
    host.run(f"cd /dev/shm; touch {dead} notes multi_tokenizer_args_1 psm_root psm_other; mkdir psm_folder; "
             "truncate -s 4M psm_0a1b2c3d; truncate -s 20G vllm_offload_0000.mmap; ln -s /etc/passwd psm_link; "
             f"chown -h llm-own {old}; chown llm-both psm_other")  # fmt: skip
    time.sleep(5.5)
    host.run("touch /dev/shm/psm_young; chown llm-own /dev/shm/psm_young")
    before = names(host)
    host.run("systemctl start own")
    left = names(host)
    log = host.run(["journalctl", "-u", "own", "--no-pager", "-o", "short-iso-precise"]).stdout
    host.run("systemctl stop own " + " ".join(f"hold-{kind}" for kind in HELD))
    return before, left, log


@pytest.mark.failure("1.3", "1.9")
@pytest.mark.parametrize("name", DEAD)
def test_a_dead_segment_is_removed_before_a_start(cleaned, name):
    before, left, log = cleaned
    assert name in before
    assert name not in left
    assert f"removed dead shared memory /dev/shm/{name}: " in log


@pytest.mark.failure("1.3", "1.4", "1.9")
@pytest.mark.parametrize("name", SPARED)
def test_1_4_what_may_be_alive_or_is_somebody_elses_stays(cleaned, name):
    before, left, _log = cleaned
    assert name in before
    assert name in left


@pytest.mark.failure("1.6")
def test_1_6_each_removal_is_told_with_time_size_owner_and_age(cleaned):
    lines = [line for line in cleaned[2].splitlines() if "psm_0a1b2c3d" in line]
    assert len(lines) == 1
    assert re.search(r"^20\S+T\S+ .*psm_0a1b2c3d: 4194304 bytes, owner llm-own, [5-9]\d? s old$", lines[0]), lines


@contextlib.contextmanager
def churn(host, *kinds):
    """Segments of llm-both come and go; ends with those that were lost."""
    lost = []
    unit = "systemd-run --quiet --unit=churn -p User=llm-both /usr/bin/python3 /opt/segments.py churn"
    host.run("rm -f /var/tmp/lost; install -m 666 /dev/null /var/tmp/lost")
    host.run(f"{unit} 600 /var/tmp/lost {' '.join(kinds)}")
    yield lost
    assert host.run("systemctl is-active churn").stdout == "active\n"
    host.run("systemctl stop churn")
    lost += host.run("cat /var/tmp/lost").stdout.splitlines()
    host.run("find /dev/shm -type f -newer /var/tmp/lost -user llm-both -delete")


@pytest.mark.failure("1.4")
def test_a_live_neighbour_keeps_its_segments_in_200_starts_and_100_looks_without_grace(library):
    """Segments by the same names come and go while another service of the same user is started again and again.

    A start spares all that is younger than ten minutes, as the user has other processes. What it would do to older ones
    is seen without that grace: those that are held stay, and those that are not go.
    """
    host = library.host
    found = host.run("find /dev/shm -type f -user llm-both -printf '%f %i\\n'").stdout
    mine = dict(line.split() for line in found.splitlines())
    mapped = set(host.run("awk '/dev.shm/ {print $5}' /proc/[0-9]*/maps").stdout.split())
    left = {name for name, inode in mine.items() if inode not in mapped}
    assert "psm_other" in left
    assert {"nccl-", "sglang_loads_", "sgl_shm_mq_"} <= {
        re.sub(r"(?<=[-_])[0-9A-Za-z]{6,}.*|\d+_.*", "", name) for name in mine.keys() - left
    }, mine
    held = ("mapped", "read_only", "opened", "semaphore")
    starts = f"for i in $(seq 200); do {command(NEIGHBOUR)} || exit 1; sleep 0.0$(shuf -i 0-9 -n 1); done"
    with churn(host, *held, "nobody") as lost:
        said = host.run(f"PATH=/usr/sbin:/usr/bin:/sbin:/bin; {starts}", timeout=300).stdout
    assert lost == []
    assert mine.keys() <= names(host)
    assert "removed" not in said
    with churn(host, *held) as lost:
        gone, dead = json.loads(host.run("python3 /opt/segments.py clean 100 llm-both", timeout=300).stdout)
    assert lost == []
    assert sorted(gone) == sorted([*dead, *left])
    assert library.call("verify", "live")["verdict"] == "ok"


@pytest.mark.failure("1.2")
def test_1_2_a_full_dev_shm_is_emptied_before_a_start(library):
    host = library.host
    host.run("mount -o remount,size=64M /dev/shm; cd /dev/shm; for i in $(seq 60); do "
             "dd if=/dev/zero of=psm_$(printf %08x $i) bs=1M count=1 2>/dev/null; done; chown llm-own psm_000*; "
             "dd if=/dev/zero of=ballast bs=4k 2>/dev/null; sleep 5.2")  # fmt: skip
    try:
        assert host.run("df --output=avail /dev/shm | tail -1").stdout.strip() == "0"
        host.run("systemctl start own")
        assert int(host.run("df --output=avail /dev/shm | tail -1").stdout) >= 60 * 1024
    finally:
        host.run("rm -f /dev/shm/ballast; mount -o remount,size=50% /dev/shm; systemctl stop own")


@pytest.mark.failure("1.9")
def test_1_9_what_a_graceful_stop_leaves_is_removed_after_it(library):
    """SGLang leaves two kinds after SIGTERM; the service is down afterwards, so no start would clean up."""
    host = library.host
    release = rendered(service(name="own", gpus=[2, 3], parallelism={"tensor": 2}, listen={"port": 30002}, **SMALL))
    assert library.deploy(release)["verdict"] == "committed"
    time.sleep(5.2)
    before = host.run("find /dev/shm -user llm-own").stdout
    assert "sglang_loads_" in before
    assert "sgl_shm_mq_" in before
    host.run("systemctl stop own")
    assert host.run("find /dev/shm -user llm-own -name 's*'").stdout == ""


def test_nothing_is_removed_when_not_all_processes_can_be_seen(library):
    host = library.host
    host.run("cd /dev/shm; touch psm_unsure; chown llm-own psm_unsure; sleep 5.2")
    drop = "setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace"
    done = host.run(f"{drop} {command(OWN, 'ExecStopPost')}")
    assert "no shared memory was removed: without CAP_SYS_PTRACE" in done.stdout
    assert "psm_unsure" in names(host)
    assert "psm_unsure" in host.run(command(OWN, "ExecStopPost")).stdout
    assert "psm_unsure" not in names(host)


def test_a_private_dev_shm_is_seen_by_nobody_and_ends_with_the_service(library):
    host = library.host
    before = names(host)
    changes = {"shared_memory": "private", "shared_memory_size": "64M", "gpus": [2, 3], "parallelism": {"tensor": 2}}
    release = rendered(service(name="own", listen={"port": 30002}, **changes, **SMALL))
    assert library.deploy(release)["verdict"] == "committed"
    pid = host.run("systemctl show own -p MainPID --value").stdout.strip()
    inside = host.run(f"ls /proc/{pid}/root/dev/shm; stat -f -c '%S %b' /proc/{pid}/root/dev/shm").stdout
    assert "sgl_shm_mq_" in inside
    block, blocks = inside.split()[-2:]
    assert int(block) * int(blocks) == 64 << 20
    assert names(host) == before
    time.sleep(5.2)
    host.run("systemctl kill --signal=KILL own; systemctl stop own")
    assert names(host) == before
    assert library.deploy(OWN)["verdict"] == "committed"
    host.run("systemctl stop own")


@pytest.mark.failure("1.1")
def test_logind_removes_the_segments_of_a_login_user_and_not_those_of_the_made_user(library):
    host = library.host
    host.run("mkdir -p /etc/systemd/logind.conf.d; printf '[Login]\\nRemoveIPC=yes\\nUserStopDelaySec=0\\n' "
             "> /etc/systemd/logind.conf.d/test.conf; systemctl restart systemd-logind; systemctl stop own; "
             "useradd -m person; usermod -s /bin/sh -d /home/person llm-own")  # fmt: skip
    keys = "install -D -m 644 /root/.ssh/authorized_keys /home/person/.ssh/authorized_keys; chmod 755 /home/person"
    host.run(f"{keys}; echo 'StrictModes no' > /etc/ssh/sshd_config.d/test.conf; systemctl reload ssh")
    for user in ("person", "llm-own"):
        host.run(f"cd /dev/shm; touch psm_of_{user}; chown {user} psm_of_{user}")
        subprocess.run(["ssh", *host.ssh_options(), f"{user}@{host.ip}", "true"], check=True, timeout=60)
    host.run("for i in $(seq 100); do [ -e /dev/shm/psm_of_person ] || exit 0; sleep 0.1; done; exit 1")
    time.sleep(0.5)
    assert "psm_of_llm-own" in names(host)
