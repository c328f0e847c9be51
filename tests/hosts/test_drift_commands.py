"""Drift by its commands: a healthy host, what is mended when, the timer with its metrics, CI."""

from __future__ import annotations

import os
import subprocess
import time
import xml.etree.ElementTree as ET

import pytest
import yaml

from tests.hosts.commands import BIN, PATH, ROOT, invocation, request, servewright, service

NAMES = ("one", "two", "three", "four")
PORTS = dict(zip(NAMES, range(30000, 30004), strict=True))
VERIFY = {**service()["verify"], "stable": 0, "stall_timeout": 30, "burst": {"requests": 0}, "long_prompt": 0}
METRICS = "/var/lib/node_exporter/textfile_collector"


def declared(name, **changes):
    number = NAMES.index(name)
    return service(
        name=name,
        gpus=[2 * number, 2 * number + 1],
        parallelism={"tensor": 2},
        listen={"port": PORTS[name]},
        environment={"SIM_LOAD_SECONDS": "0.1", "SIM_LIFE_SCALE": "0.1"},
        verify=VERIFY,
        **changes,
    )


class Fleet:
    """One host with four services, and its inventory."""

    def __init__(self, host, path):
        self.host = host
        self.path = path
        self.settings = {}
        self.maintenance = []
        self.fail_on_drift = False
        self.write()

    def write(self):
        services = [declared(name, maintenance=self.maintenance) for name in NAMES]
        variables = {"servewright_services": services, "servewright_host": self.settings}
        variables["servewright_fail_on_drift"] = self.fail_on_drift
        hosts = {self.host.name: self.host.ansible_vars()}
        self.path.write_text(yaml.safe_dump({"llm": {"hosts": hosts, "vars": variables}}))

    def call(self, command, *arguments):
        return servewright(command, "-i", str(self.path), *arguments)

    def drift(self, *arguments):
        """Exit code, and the ids of what was found and of what was mended, by service."""
        done = self.call("drift", "--detailed-exitcode", *arguments)
        services = done.document["hosts"][self.host.name]["services"]
        ids = [
            {item["service"]: {one["id"] for one in item.get(key, [])} for item in services if item.get(key)}
            for key in ("findings", "mended")
        ]
        return (done.code, *ids)

    def invocations(self):
        return {name: invocation(self.host, name) for name in NAMES}


@pytest.fixture(scope="module")
def fleet(testbed, simulator, tmp_path_factory):
    host = testbed.boot("gpu1", prepare=simulator)
    fleet = Fleet(host, tmp_path_factory.mktemp("inventory") / "hosts.yml")
    first = fleet.call("deploy")
    assert first.code == 0, first.text
    yield fleet
    testbed.destroy(host)


def ask(fleet, name):
    body = {"model": "kimi-k2.5", "prompt": "Hello", "max_tokens": 8}
    fleet.host.run(request("/v1/completions", body, PORTS[name], timeout=60))


# What a boot waits for on a host whose network takes its time.
SLOW_NETWORK = r"""
printf '[Unit]\nBefore=network-online.target\n[Service]\nType=oneshot\nExecStart=/bin/sleep 4\n' > \
    /etc/systemd/system/slow-network.service
systemctl add-wants network-online.target slow-network.service
"""


def test_a_healthy_host_has_no_drift_and_is_asked_once(fleet):
    host, before = fleet.host, fleet.invocations()
    for name in NAMES:
        ask(fleet, name)
    # Logs are rotated, and packages that have nothing to do with the services are updated.
    host.run("journalctl --rotate --vacuum-size=1M && logger hello")
    host.run("cd /usr/lib/x86_64-linux-gnu && cp libnuma.so.1.0.0 /root/l && mv /root/l libnuma.so.1.0.0")
    host.run("printf '[Service]\\nExecStart=/bin/true\\n' > /etc/systemd/system/other.service; systemctl daemon-reload")
    command = [BIN / "ansible-playbook", "-vvv", "-i", fleet.path, "servewright.llm.drift"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL, check=True)
    assert done.stdout.count("SSH: EXEC") == 1
    assert "changed=0" in done.stdout
    assert fleet.drift() == (0, {}, {})
    assert fleet.invocations() == before

    # The timer makes up for what it missed while the host was down as soon as that boots.
    fleet.settings = {"metrics_folder": METRICS, "drift_timer": {"schedule": "*-*-* 04:00"}}
    fleet.write()
    assert fleet.call("deploy").code == 0
    looked = f"test -e {METRICS}/servewright_drift.prom"
    host.run(SLOW_NETWORK + "touch -d '2 days ago' /var/lib/systemd/timers/stamp-servewright-drift.timer")
    host.reboot()
    deadline = time.monotonic() + 60
    while fleet.call("verify").code != 0 or host.run(looked, check=False).returncode:
        assert time.monotonic() < deadline
    assert host.run("journalctl -u servewright-drift.service -p warning -o cat --no-pager").stdout == ""
    assert fleet.drift() == (0, {}, {})


def test_what_needs_no_restart_is_mended_at_once_and_the_rest_with_leave(fleet, tmp_path):
    host, before = fleet.host, fleet.invocations()
    host.run("echo '# mine' >> /etc/systemd/system/one.service")
    host.run("systemctl stop two && systemctl stop three && systemctl disable three")
    everything = {"one": {"unit.file"}, "two": {"service.down"}, "three": {"service.down", "unit.disabled"}}
    left = {"two": {"service.down"}, "three": {"service.down"}}
    assert fleet.drift() == (2, everything, {})

    junit, page = tmp_path / "drift.xml", tmp_path / "drift.html"
    assert fleet.drift("--junit", str(junit), "--html", str(page))[0] == 2
    failed = {case.get("name") for case in ET.parse(junit).iter("testcase") if case.find("failure") is not None}
    assert "unit.file" in " ".join(failed), failed
    assert "one.service was edited" in page.read_text()

    assert fleet.drift("--repair") == (2, left, {"one": {"unit.file"}, "three": {"unit.disabled"}})
    text = subprocess.run(
        [BIN / "servewright", "drift", "-i", fleet.path], capture_output=True, text=True, cwd="/", check=False
    )
    assert text.returncode == 0, text.stdout
    assert "service.down  two is down: inactive" in text.stdout
    assert "-> start the committed release through its gates (needs a restart)" in text.stdout

    assert fleet.drift("--repair", "--allow-restart", "--reason", "drill")[:2] == (0, {})
    assert fleet.drift() == (0, {}, {})
    now = fleet.invocations()
    assert {name for name in NAMES if now[name] != before[name]} == {"two", "three"}
    entry = fleet.call("history", "two").service()["history"][0]
    assert (entry["command"], entry["reason"], entry["verdict"]) == ("repair", "drill", "committed")


def test_a_maintenance_window_allows_restarts(fleet):
    fleet.maintenance = ["daily 00:00-00:00"]
    fleet.write()
    assert fleet.call("deploy").code == 0
    fleet.host.run("systemctl stop four")
    assert fleet.drift()[:2] == (2, {"four": {"service.down"}})
    assert fleet.drift("--repair")[:2] == (0, {})


def test_a_run_in_ci_can_fail_on_drift(fleet, tmp_path):
    fleet.fail_on_drift = True
    fleet.write()
    fleet.host.run("systemctl disable one")
    command = [BIN / "ansible-runner", "run", ROOT, "-p", "playbooks/drift.yml", "--inventory", fleet.path]
    command += ["--artifact-dir", tmp_path / "artifacts"]
    run = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "check": False}
    run["env"] = {**os.environ, "PATH": PATH}
    done = subprocess.run(command, **run)
    assert done.returncode == 2, done.stdout
    assert "one: drift: unit.disabled" in done.stdout
    assert fleet.drift("--repair")[:2] == (0, {})
    assert subprocess.run(command, **run).returncode == 0
    fleet.fail_on_drift = False
    fleet.write()


def test_a_timer_on_the_host_tells_of_drift(fleet):
    host = fleet.host
    fleet.settings = {"metrics_folder": METRICS, "drift_timer": {"schedule": "once a day"}}
    fleet.write()
    refused = fleet.call("deploy")
    assert (refused.code, "systemd takes 'once a day' for no time" in refused.text) == (3, True), refused.text

    before = fleet.invocations()
    fleet.settings["drift_timer"]["schedule"] = "*-*-* 04:30"
    fleet.write()
    assert fleet.call("plan", "--detailed-exitcode").code == 2
    assert fleet.call("deploy").code == 0
    assert fleet.call("plan", "--detailed-exitcode").code == 0
    assert host.run("systemctl is-enabled servewright-drift.timer").stdout == "enabled\n"

    host.run("systemctl start servewright-drift.service")
    assert 'servewright_drift_findings{service="one"} 0\n' in host.run(f"cat {METRICS}/servewright_drift.prom").stdout
    host.run("systemctl disable two && systemctl start servewright-drift.service")
    metrics = host.run(f"cat {METRICS}/servewright_drift.prom").stdout
    assert 'servewright_drift_findings{service="two"} 1\n' in metrics
    assert 'servewright_drift_finding{service="two",id="unit.disabled",needs_restart="false"} 1\n' in metrics
    journal = host.run("journalctl -u servewright-drift.service -p warning -o cat --no-pager").stdout
    assert "two: drift unit.disabled: two.service is disabled" in journal
    assert fleet.drift("--repair")[:2] == (0, {})
    assert fleet.invocations() == before

    fleet.settings = {}
    fleet.write()
    assert fleet.call("deploy").code == 0
    assert host.run("systemctl cat servewright-drift.timer", check=False).returncode != 0
