"""Declared, deployed, verified, broken, rolled back: by the command line, on a real systemd host, simulated engines."""

from __future__ import annotations

import os
import subprocess
from functools import partial

import pytest

from tests.hosts.commands import BIN, PATH, ROOT, invocation, servewright, service
from tests.simulator.install import install

# Debian 11, 12 and 13: systemd 247, 252 and 257, with the Python of each.
SUITES = {"bullseye": "3.9", "bookworm": "3.11", "trixie": "3.13"}


@pytest.mark.failure("8.1")
@pytest.mark.parametrize(
    ("engine", "suite"), [("sglang", "bookworm"), ("vllm", "bookworm"), ("sglang", "bullseye"), ("vllm", "trixie")]
)
def test_8_1_a_service_goes_its_whole_way(hosts, inventory, engine, suite):
    (host,) = hosts(1, prepare=partial(install, python_version=SUITES[suite]), suite=suite)

    def declare(**changes):
        return str(inventory([host], variables={"servewright_services": [service(engine, **changes)]}))

    path = declare()
    assert servewright("plan", "-i", path, "--detailed-exitcode").code == 2
    traces = "/etc/servewright /usr/local/lib/servewright /var/lib/servewright /var/cache/servewright"
    assert host.run(f"ls -d {traces}", check=False).stdout == ""  # a plan writes nothing

    first = servewright("deploy", "-i", path, "--reason", "first")
    assert (first.code, first.service()["verdict"]) == (0, "committed"), first.text
    assert {gate["verdict"] for gate in first.service()["gates"]} == {"passed"}
    running = invocation(host)

    again = servewright("deploy", "-i", path)
    assert (again.code, again.service()["verdict"]) == (0, "unchanged"), again.text
    assert servewright("plan", "-i", path, "--detailed-exitcode").code == 0
    assert invocation(host) == running

    reloaded = servewright("deploy", "-i", declare(description="other words"))
    assert (reloaded.code, reloaded.service()["release"]) == (0, 2), reloaded.text
    assert "Description=other words" in host.run("systemctl cat kimi").stdout
    assert invocation(host) == running  # what needs no restart causes none
    (parser,) = [check for check in reloaded.service()["checks"] if check["id"] == "command_line"]
    assert parser["evidence"]["cached"]  # since the first deploy, which found a host that nobody managed

    broken = servewright("deploy", "-i", declare(environment={"SIM_GARBAGE": "1"}))
    assert (broken.code, broken.service()["verdict"]) == (4, "rolled_back"), broken.text
    assert "gate answers failed" in broken.service()["message"]
    assert {gate["verdict"] for gate in broken.service()["rollback_gates"]} == {"passed"}
    assert "SIM_GARBAGE" not in host.run("systemctl show kimi -p Environment").stdout

    third = servewright("deploy", "-i", declare(environment={"SIM_SPEED": "2"}))
    assert third.service()["release"] == 4, third.text
    back = servewright("rollback", "-i", path, "kimi")
    assert (back.code, back.service()["release"]) == (0, 2), back.text

    assert servewright("verify", "-i", path).code == 0
    state = servewright("status", "-i", path).service()["state"]
    assert (state["active"], state["release"], state["transaction"]) == ("active", 2, "committed")
    entries = servewright("history", "-i", path).service()["history"]
    assert [(entry["release"], entry["verdict"], entry["reason"]) for entry in entries] == [
        (2, "committed", ""),
        (4, "committed", ""),
        (3, "rolled_back", ""),
        (2, "committed", ""),
        (1, "committed", "first"),
    ]
    assert servewright("logs", "-i", path).service()["log"]
    drift = servewright("drift", "-i", path)
    assert (drift.code, drift.service()["findings"]) == (0, []), drift.text


def test_a_no_change_deploy_is_one_remote_call(engine_host, inventory):
    path = str(inventory([engine_host], variables={"servewright_services": [service()]}))
    assert servewright("deploy", "-i", path).code == 0
    command = [BIN / "ansible-playbook", "-vvv", "-i", path, "servewright.llm.deploy"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL, check=True)
    assert "changed=0" in done.stdout
    assert done.stdout.count("SSH: EXEC") == 1


def test_the_playbooks_run_from_ansible_runner_as_in_ci(engine_host, inventory, tmp_path):
    path = inventory([engine_host], variables={"servewright_services": [service()]})
    done = subprocess.run(
        [BIN / "ansible-runner", "run", ROOT, "-p", "playbooks/deploy.yml",
         "--inventory", path, "--artifact-dir", tmp_path / "artifacts"],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, env={**os.environ, "PATH": PATH},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert engine_host.run("systemctl is-active kimi").stdout == "active\n"


@pytest.mark.failure("8.5")
def test_8_5_a_first_release_that_fails_leaves_nothing_running(engine_host, inventory):
    path = str(
        inventory([engine_host], variables={"servewright_services": [service(environment={"SIM_EXIT_AFTER": "0"})]})
    )
    done = servewright("deploy", "-i", path)
    assert (done.code, done.service()["verdict"]) == (4, "rolled_back"), done.text
    assert "nothing ran before" in done.service()["message"]
    assert engine_host.run("systemctl cat kimi", check=False).returncode != 0


@pytest.mark.failure("8.2", "8.3")
def test_8_2_and_8_3_what_somebody_changed_by_hand_is_mended_by_the_next_deploy(engine_host, inventory):
    host = engine_host
    path = str(inventory([host], variables={"servewright_services": [service()]}))
    assert servewright("deploy", "-i", path).code == 0
    host.run("sed -i s/RestartSec=1/RestartSec=77/ /etc/systemd/system/kimi.service; systemctl stop kimi")
    done = servewright("deploy", "-i", path)
    assert (done.code, done.service()["verdict"]) == (0, "committed"), done.text
    assert {change["field"] for change in done.service()["changes"]} >= {"running process", "unit file"}
    assert host.run("systemctl is-active kimi").stdout == "active\n"
    assert "RestartSec=77" not in host.run("cat /etc/systemd/system/kimi.service").stdout
    assert servewright("deploy", "-i", path).service()["verdict"] == "unchanged"
