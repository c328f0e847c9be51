"""Before a start all that is left of a service is gone, and what is not the service's own is named and left alone."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.hosts.commands import Library, invocation
from tests.hosts.faults import check
from tests.hosts.faults import release as small

STRAY = Path(__file__).with_name("stray.py")
LIMITS = {"stop_timeout": 10, "gpu_wait": 3, "start_timeout": 60, "restart_delay": 1}


@pytest.fixture(scope="module")
def library(testbed, simulator):
    """One host, on which `small()` is committed and serves before and after each test."""
    host = testbed.boot("stray", prepare=simulator)
    (host.root / "opt/stray.py").write_text(STRAY.read_text())
    found = Library(host)
    result = found.deploy(small(limits=LIMITS))
    assert result["verdict"] == "committed", result
    yield found
    testbed.destroy(host)


@contextlib.contextmanager
def stray(host, *words: str) -> Iterator[int]:
    """A process of stray.py for the length of a block; gives its pid."""
    host.run("rm -f /var/tmp/stray")
    host.run(["/usr/bin/python3", "/opt/stray.py", *words])
    pid = int(host.run("until [ -s /var/tmp/stray ]; do sleep 0.05; done; cat /var/tmp/stray", timeout=30).stdout)
    try:
        yield pid
    finally:
        host.run(["kill", "-KILL", str(pid)], check=False)


def alive(host, pid: int) -> bool:
    return host.run(f"grep -q '^State:.[^ZX]' /proc/{pid}/status", check=False).returncode == 0


def said(host, since: str) -> str:
    """What the service's log says since a time."""
    return host.run(["journalctl", "-u", "kimi", "--no-pager", "-o", "cat", "--since", since]).stdout


def now(host) -> str:
    return host.run(["date", "+%Y-%m-%d %H:%M:%S"]).stdout.strip()


def serves(library: Library) -> None:
    end = time.monotonic() + 60
    while library.call("verify", "kimi")["verdict"] != "ok":
        assert time.monotonic() < end, library.host.run("systemctl status kimi", check=False).stdout
        time.sleep(0.5)
    check(library, small(limits=LIMITS))


def proof(host, kind: str) -> str:
    return {
        "marker": "SERVEWRIGHT_SERVICE=kimi",
        "invocation": f"INVOCATION_ID={invocation(host)}",
        "no": "X=",
        "other service": "SERVEWRIGHT_SERVICE=kim",
        "forged": "INVOCATION_ID=" + "0" * 32,
    }[kind]


@pytest.mark.failure("2.2")
@pytest.mark.parametrize("kind", ["marker", "invocation"])
def test_a_process_that_left_every_tree_is_ended_before_a_start(library, kind):
    """It has another name and session, is in no unit, ignores SIGTERM, and holds the port and the GPU."""
    host = library.host
    mark = proof(host, kind)
    host.run("systemctl stop kimi")
    with stray(host, "llm-kimi", "30000", "0", "-", mark) as pid:
        since = now(host)
        host.run("systemctl start kimi")
        assert not alive(host, pid)
        assert f"ending pid {pid} (sglang::scheduler_TP0" in said(host, since)
    serves(library)


@pytest.mark.failure("2.2")
@pytest.mark.parametrize("mark", ["deploy", "unit file gone"])
def test_a_deploy_ends_it_before_it_looks_at_the_gpus(library, mark):
    host = library.host
    host.run(
        "systemctl stop kimi"
        + ("; rm /etc/systemd/system/kimi.service; systemctl daemon-reload" if mark != "deploy" else "")
    )
    with stray(host, "llm-kimi", "30000", "0", "-", "SERVEWRIGHT_SERVICE=kimi") as pid:
        result = library.deploy(small({"TEST_MARK": mark.split()[0]}, limits=LIMITS))
        assert result["verdict"] == "committed", result
        assert not alive(host, pid)
    assert library.deploy(small(limits=LIMITS))["verdict"] == "committed"
    check(library, small(limits=LIMITS))


@pytest.mark.failure("2.2")
def test_a_child_that_was_moved_out_of_the_control_group_does_not_survive_the_stop(library):
    host = library.host
    assert library.deploy(small({"SIM_ORPHAN": "both"}, limits=LIMITS))["verdict"] == "committed"
    main = host.run("systemctl show kimi -p MainPID --value").stdout.strip()
    (child,) = host.run(f"pgrep -u llm-kimi -P 1 | grep -vx {main}").stdout.split()
    host.run(["/usr/bin/python3", "/opt/stray.py", "move", child])
    assert library.deploy(small(limits=LIMITS))["verdict"] == "committed"
    assert not alive(host, int(child))
    check(library, small(limits=LIMITS))


@pytest.mark.failure("2.2", "2.3", "2.6")
@pytest.mark.parametrize(("port", "gpu"), [("30000", "-"), ("0", "0")], ids=["port", "gpu"])
@pytest.mark.parametrize(
    ("user", "unit", "kind"),
    [
        ("llm-kimi", "-", "no"),
        ("llm-kimi", "-", "other service"),
        ("llm-kimi", "-", "forged"),
        ("nobody", "-", "marker"),
        ("llm-kimi", "ssh.service", "marker"),
    ],
    ids=["no-proof", "other-service", "forged-invocation", "other-user", "other-unit"],
)
def test_a_process_that_is_not_provably_the_services_own_is_only_named(library, user, unit, kind, port, gpu):
    host = library.host
    host.run("systemctl stop kimi")
    with stray(host, user, port, gpu, unit, proof(host, kind)) as pid:
        since = now(host)
        (refused,) = library.begin(small({"TEST_MARK": "refused"}, limits=LIMITS))
        assert refused["verdict"] == "refused", refused
        assert f"held by pid {pid} (sglang::scheduler_TP0" in refused["message"]
        assert host.run("systemctl start kimi", check=False).returncode != 0
        host.run("systemctl stop kimi")
        holder = f"port 30000 is held by pid {pid} (" if gpu == "-" else f"not free after 3 s: GPU 0: pid {pid} ("
        assert holder in said(host, since)
        assert alive(host, pid)
    host.run("systemctl reset-failed kimi; systemctl start kimi")
    serves(library)


@pytest.mark.failure("2.1")
def test_2_1_an_engine_core_that_outlives_the_api_process_is_ended_before_the_restart(library):
    """KillMode=process, as hand-written units have it, leaves it alone; it would hold the GPU for minutes."""
    host = library.host
    folder = "/etc/systemd/system/kimi.service.d"
    host.run(rf"mkdir {folder}; printf '[Service]\nKillMode=process\n' > {folder}/kill.conf")
    vllm = small(engine="vllm", options={}, limits=LIMITS)
    assert library.deploy(vllm)["verdict"] == "committed"
    before = host.run("pgrep -f 'VLLM::'").stdout.split()
    assert before
    old = invocation(host)
    host.run("systemctl kill --kill-who=main --signal=KILL kimi")
    end = time.monotonic() + 60
    while invocation(host) == old or library.call("verify", "kimi")["verdict"] != "ok":
        assert time.monotonic() < end, host.run("systemctl status kimi", check=False).stdout
        time.sleep(0.5)
    assert not [pid for pid in before if alive(host, int(pid))]
    host.run(f"rm -r {folder}; systemctl daemon-reload")
    assert library.deploy(small(limits=LIMITS))["verdict"] == "committed"
    check(library, small(limits=LIMITS))


@pytest.mark.failure("2.6")
def test_closed_connections_that_linger_do_not_keep_a_service_from_starting(library):
    host = library.host
    connect = "import socket; s = socket.create_connection(('127.0.0.1', 30000)); s.send(b'GET /health HTTP/1.1\\r\\n" \
              "Host: x\\r\\nConnection: close\\r\\n\\r\\n'); s.recv(9999); s.recv(1); s.close()"  # fmt: skip
    host.run(["/usr/bin/python3", "-c", connect])
    host.run("systemctl restart kimi")
    waiting = host.run("ss -Htan state time-wait '( sport = :30000 )'").stdout
    assert waiting, "no connection lingered"
    serves(library)


def test_a_release_that_never_served_is_not_waited_for_when_it_is_rolled_back(library):
    """It ignores SIGTERM while it loads, as vLLM 0.32.0 does; a stop would take its whole 60 s."""
    stubborn = small(
        {"SIM_IGNORE_SIGTERM": "1", "SIM_STALL_AT": "30"},
        limits={**LIMITS, "stop_timeout": 60},
        verify={"stable": 0.5, "load_timeout": 30, "stall_timeout": 2, "request_timeout": 5},
    )
    result = library.deploy(stubborn)
    assert (result["verdict"], "stalled" in result["message"]) == ("rolled_back", True), result
    times = {step["step"]: datetime.fromisoformat(step["time"]) for step in result["steps"]}
    assert (times["waiting_gpus"] - times["rolling_back"]).total_seconds() < 30
    check(library, small(limits=LIMITS))


@pytest.mark.failure("2.5")
def test_nothing_is_started_on_top_of_a_process_that_survives_sigkill(library, tmp_path):
    """A frozen control group stands for a driver that never returns: its processes take no signal at all."""
    host = library.host
    short = {**LIMITS, "stop_timeout": 2}
    assert library.deploy(small({"TEST_MARK": "stuck"}, limits=short))["verdict"] == "committed"
    main = host.run("systemctl show kimi -p MainPID --value").stdout.strip()
    (outer,) = [
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/status")
        if path.read_text(errors="replace").partition("NSpid:")[2].split("\n")[0].split()[1:] == [main]
        and "launch_server" in (path.parent / "cmdline").read_text()
    ]
    subprocess.run(["mount", "-t", "cgroup", "-o", "freezer", "none", tmp_path], check=True)
    frozen = tmp_path / f"stuck-{outer}"
    before = tmp_path / Path(f"/proc/{outer}/cgroup").read_text().partition("freezer:/")[2].split("\n")[0]
    try:
        frozen.mkdir()
        (frozen / "cgroup.procs").write_text(outer)
        (frozen / "freezer.state").write_text("FROZEN")
        result = library.deploy(small(limits=LIMITS), timeout=180)
        assert result["verdict"] == "rollback_failed", result
        assert f"processes outlived SIGKILL: pid {main} (" in result["message"]
        assert "the host needs a reboot; nothing was started" in result["message"]
        assert library.host.run("pgrep -c -f '[s]glang.launch_server'").stdout == "1\n"
    finally:
        (frozen / "freezer.state").write_text("THAWED")
        with contextlib.suppress(ProcessLookupError):  # thawed, it may take its SIGKILL at any moment
            (before / "cgroup.procs").write_text(outer)
        time.sleep(1)
        frozen.rmdir()
        subprocess.run(["umount", tmp_path], check=True)
    assert library.deploy(small(limits=LIMITS))["verdict"] in ("committed", "unchanged")
    check(library, small(limits=LIMITS))
