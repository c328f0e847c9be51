"""The watch after a deploy: dead is told from busy, stopped and loading, and restarted only where that is declared."""

from __future__ import annotations

import subprocess
import time
from xml.etree import ElementTree

import pytest
import yaml

from tests.hosts.commands import BIN, Library, invocation, request, servewright, service

METRICS = "/var/lib/node_exporter/textfile_collector"
TIMER = "servewright-watch-kimi.timer"
WATCH = {"every": 3600, "failures": 2}  # the tests begin each look by themselves
VERIFY = {
    **service()["verify"],
    "stable": 0,
    "stall_timeout": 30,
    "burst": {"requests": 0},
    "long_prompt": 0,
    "prompts": [],
    "request_timeout": 3,
}


class Watched:
    """One host with one vLLM that takes one request at a time, and its inventory."""

    def __init__(self, host, path):
        self.host, self.path, self.library = host, path, Library(host)

    def declare(self, watch, load_seconds="0.1"):
        declared = service(
            engine="vllm",
            options={"max_num_seqs": 1},
            environment={"SIM_LOAD_SECONDS": load_seconds, "SIM_LIFE_SCALE": "0.1"},
            verify=VERIFY,
            limits={"stop_timeout": 3, "gpu_wait": 20, "start_timeout": 60, "restart_delay": 1},
            **({"watch": watch} if watch else {}),
        )
        variables = {"servewright_services": [declared], "servewright_host": {"metrics_folder": METRICS}}
        hosts = {self.host.name: self.host.ansible_vars()}
        self.path.write_text(yaml.safe_dump({"llm": {"hosts": hosts, "vars": variables}}))

    def call(self, command, *arguments):
        return servewright(command, "-i", str(self.path), *arguments)

    def look(self, times=1):
        """Verdict and failures in a row after runs of the timer's service, as its metrics tell."""
        for _ in range(times):
            self.host.run("systemctl start servewright-watch-kimi.service")
        text = self.host.run(f"cat {METRICS}/servewright_watch_kimi.prom").stdout
        samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        verdicts = [name.split('"')[3] for name, value in samples.items() if "verdict=" in name and value == "1"]
        return verdicts, int(samples['servewright_watch_failures{service="kimi"}'])

    def hang(self, signal="STOP"):
        """Every GET is answered, no POST: the engine core is stopped, the API server lives. CONT lets it go on."""
        self.host.run(f"pkill -{signal} -f VLLM::EngineCor[e]")

    def says(self):
        """Lines of the watch in the host's log."""
        return self.host.run("journalctl -u servewright-watch-kimi.service -o cat --no-pager").stdout

    def latest(self):
        """The latest transaction, with its verdict."""
        return self.library.call("history", "kimi")["history"][0]

    def get(self, path):
        return self.host.run(request(path)).stdout.strip()


@pytest.fixture(scope="module")
def watched(testbed, simulator, tmp_path_factory):
    host = testbed.boot("gpu1", prepare=simulator)
    watched = Watched(host, tmp_path_factory.mktemp("inventory") / "hosts.yml")
    watched.declare(WATCH)
    first = watched.call("deploy")
    assert first.code == 0, first.text
    yield watched
    testbed.destroy(host)


def test_a_deploy_brings_the_timer_and_a_second_changes_nothing(watched, tmp_path):
    host, before = watched.host, invocation(watched.host)
    assert host.run(f"systemctl is-enabled {TIMER}; systemctl is-active {TIMER}").stdout == "enabled\nactive\n"
    assert watched.call("plan", "--detailed-exitcode").code == 0
    assert watched.call("deploy").service()["verdict"] == "unchanged"
    assert watched.look() == (["healthy"], 0)

    done = watched.call("watch", "--junit", str(tmp_path / "watch.xml"))
    assert (done.code, done.service()["watch"]["verdict"]) == (0, "healthy"), done.text
    assert {case.get("name") for case in ElementTree.parse(tmp_path / "watch.xml").iter("testcase")} >= {"ready"}
    command = [BIN / "servewright", "watch", "-i", watched.path]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "every 3600 s; dead after 2 in a row, then only tells" in shown

    host.run(f"systemctl stop {TIMER}")
    assert [change["field"] for change in watched.call("plan").service()["changes"]] == ["watch timer"]
    for broken in (f"systemctl stop {TIMER}", f"systemctl disable {TIMER}", f"echo >> /etc/systemd/system/{TIMER}"):
        host.run(broken)
        (found,) = watched.library.call("drift", ["kimi"])
        assert [one["id"] for one in found["findings"]] == ["watch.timer"]
        (mended,) = watched.library.call("drift", ["kimi"], True)
        assert (mended["verdict"], mended["findings"]) == ("mended", [])
    assert invocation(host) == before


@pytest.mark.failure("9.2")
def test_9_2_a_server_that_answers_each_get_and_no_post_is_found_dead(watched):
    before = invocation(watched.host)
    watched.hang()
    try:
        assert (watched.get("/v1/models"), watched.get("/health")) == ("200", "200")
        assert watched.look() == (["failing"], 1)
        done = watched.call("watch")
        assert (done.code, done.service()["watch"]["verdict"], done.service()["watch"]["failures"]) == (1, "dead", 2)
        assert watched.look() == (["dead"], 2)  # a look by hand does not count
    finally:
        watched.hang("CONT")
    assert watched.says().count("kimi: dead, 2 in a row") == 1
    assert watched.look() == (["healthy"], 0)
    assert invocation(watched.host) == before  # nothing but telling is declared


def test_a_service_that_somebody_stopped_is_left_alone(watched):
    watched.declare({**WATCH, "restart": True}, load_seconds="3")
    assert watched.call("deploy", "--detach").code == 0
    assert watched.look() == (["held"], 0)
    watched.library.settle(watched.library.call("follow", "kimi", None, 60))
    assert watched.look() == (["healthy"], 0)

    watched.host.run("systemctl stop kimi")
    assert watched.look(2) == (["stopped"], 0)
    assert watched.host.run("systemctl is-active kimi", check=False).stdout == "inactive\n"
    watched.host.run("systemctl start kimi")
    assert watched.look() == (["loading"], 0)
    wait_healthy(watched)

    watched.host.reboot()
    assert watched.host.run(f"systemctl is-active {TIMER}").stdout == "active\n"
    assert watched.look() == (["loading"], 0)
    wait_healthy(watched)


def wait_healthy(watched):
    end = time.monotonic() + 60
    while watched.look() != (["healthy"], 0):
        assert time.monotonic() < end, watched.says()


def test_a_loaded_server_is_kept_and_never_restarted(watched):
    before = invocation(watched.host)
    body = {"model": "kimi-k2.5", "prompt": "x", "max_tokens": 6000, "ignore_eos": True, "temperature": 0}
    # 24 s, and every other request waits for it.
    load = request("/v1/completions", body, timeout=120)
    watched.host.run(["systemd-run", "--quiet", "--unit", "load", *load])
    seen = [watched.look() for _ in range(3)]
    assert seen == [(["busy"], 0)] * 3, watched.says()
    done = watched.call("watch")
    assert (done.code, done.service()["watch"]["verdict"]) == (0, "busy"), done.text
    assert "tokens were processed meanwhile" in done.service()["message"]
    wait_healthy(watched)
    assert invocation(watched.host) == before


def test_a_dead_server_is_restarted_once_where_that_is_declared(watched):
    before = invocation(watched.host)
    watched.hang()
    assert watched.look() == (["failing"], 1)
    assert invocation(watched.host) == before
    watched.look()
    assert watched.library.settle(watched.library.call("follow", "kimi", None, 60))["verdict"] == "committed"
    entry = watched.latest()
    assert (entry["command"], entry["by"], entry["verdict"]) == ("watch", "servewright-watch", "committed")
    assert "dead, 2 times in a row" in entry["reason"]
    again = invocation(watched.host)
    assert again != before
    assert watched.look() == (["healthy"], 0)

    watched.hang()
    assert watched.look(2) == (["dead"], 2)
    assert "not restarted: it was restarted" in watched.says()
    assert watched.call("watch").code == 1
    assert invocation(watched.host) == again
    watched.hang("CONT")
    wait_healthy(watched)


def test_without_a_watch_there_is_no_timer(watched):
    watched.declare(None)
    assert watched.call("deploy").code == 0
    assert watched.host.run(f"systemctl cat {TIMER}", check=False).returncode != 0
    assert "watch" not in watched.host.run(f"ls {METRICS} /run/servewright").stdout
    assert watched.call("plan", "--detailed-exitcode").code == 0
    done = watched.call("watch")
    assert (done.code, done.service()["watch"]["declared"]) == (0, None)
