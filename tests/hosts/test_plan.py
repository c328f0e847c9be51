"""A plan says what will happen, and a deploy of it does that or nothing; reports tell the rest."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from servewright.release.planned import Plan
from tests.hosts.commands import BIN, PATH, ROOT, invocation, servewright, service

CANARY = "CANARY-5b77"


@pytest.fixture(scope="module")
def shared_host(testbed, simulator):
    """One host for all of this module; the tests build upon one another in their order."""
    host = testbed.boot("gpu1", prepare=simulator)
    yield host
    testbed.destroy(host)


@pytest.fixture
def declare(shared_host, inventory):
    """Writes the inventory with one service and gives its path."""

    def write(variables=None, host_variables=None, **changes):
        variables = {"servewright_services": [service(**changes)], **(variables or {})}
        return str(inventory([shared_host], variables=variables, host_variables=host_variables))

    return write


def follows_the_schema(document):
    """The document is as its model says, and has nothing in it that the model does not name."""
    model = Plan.model_validate(document)
    for host, found in document["hosts"].items():
        for number, planned in enumerate(found["services"]):
            known = model.hosts[host].services[number]
            assert set(planned) <= set(type(known).model_fields), set(planned) - set(type(known).model_fields)
            for change, read in zip(planned["changes"], known.changes, strict=True):
                assert set(change) <= set(type(read).model_fields)
    return document


def comparable(planned):
    """A planned service without the evidence of its checks, such as free bytes, which are others every time."""
    return {**planned, "checks": [(check["id"], check["passed"]) for check in planned["checks"]]}


def test_the_plan_of_a_clean_host_is_applied_once(shared_host, declare, tmp_path):
    path, saved = declare(), tmp_path / "first.json"
    done = servewright("plan", "-i", path, "--detailed-exitcode", "--out", str(saved))
    assert done.code == 2, done.text
    assert follows_the_schema(json.loads(saved.read_text())) == done.document
    (change,) = done.service()["changes"]
    assert (change["field"], change["consequence"], change["source"]["file"]) == ("service", "restart", path)
    assert shared_host.run("ls /etc/servewright /usr/local/lib/servewright", check=False).stdout == ""

    changed = servewright("deploy", "-i", declare(description="other"), "--plan", str(saved))
    assert (changed.code, changed.service()["verdict"]) == (3, "refused"), changed.text
    assert "the declaration has changed since the plan was made" in changed.text
    assert shared_host.run("ls /etc/servewright /usr/local/lib/servewright", check=False).stdout == ""

    applied = servewright("deploy", "-i", declare(), "--plan", str(saved))
    assert (applied.code, applied.service()["verdict"]) == (0, "committed"), applied.text
    again = servewright("deploy", "-i", declare(), "--plan", str(saved))
    assert (again.code, again.service()["verdict"]) == (3, "refused"), again.text
    assert "the host has changed since the plan was made" in again.text


CHANGED = {
    "options": {"attention_backend": "flashinfer", "max_running_requests": 32},
    "environment": {"EXTRA": "2"},
    "nccl": {"profile": "pcie-ll-ring", "environment": {"NCCL_BUFFSIZE": "8388608"}},
    "limits": {"stop_timeout": 11, "gpu_wait": 20, "start_timeout": 60, "restart_delay": 1},
    "verify": {"stable": 0.6, "load_timeout": 60, "stall_timeout": 15, "request_timeout": 10},
}
EXPECTED = [
    ("flag --max-running-requests", None, "32", "restart", "max_running_requests:"),
    ("environment.EXTRA", None, "2", "restart", "EXTRA:"),
    ("environment.NCCL_BUFFSIZE", "16777216", "8388608", "restart", "NCCL_BUFFSIZE:"),
    ("unit Service.TimeoutStopSec", "10", "11", "reload", "stop_timeout:"),
    ("verify.stable", 0.5, 0.6, "none", "stable:"),
]


def test_every_change_names_values_consequence_and_line(shared_host, declare, tmp_path):
    path, saved = declare(**CHANGED), tmp_path / "second.json"
    running = invocation(shared_host)
    done = servewright("plan", "-i", path, "--out", str(saved))
    assert done.code == 0, done.text
    follows_the_schema(done.document)
    found = {change["field"]: change for change in done.service()["changes"]}
    lines = Path(path).read_text().splitlines()
    for field, old, new, consequence, key in EXPECTED:
        change = found[field]
        assert (change["old"], change["new"], change["consequence"]) == (old, new, consequence)
        assert change["source"]["file"] == path
        assert lines[change["source"]["line"] - 1].strip().startswith(key)
    downtime = done.service()["downtime"]
    assert (downtime["of"], downtime["same_model"]) == (1, True)
    assert 0 < downtime["seconds"] < 120

    # Check mode of the deploy is the same answer.
    command = [BIN / "servewright", "deploy", "-i", path, "--json", "--", "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    answers = (json.loads(checked.stdout)["hosts"]["gpu1"]["services"], done.document["hosts"]["gpu1"]["services"])
    assert comparable(*answers[0]) == comparable(*answers[1])

    # A service that is stopped by hand is another state; one that was only restarted is not.
    shared_host.run("systemctl stop kimi")
    stopped = servewright("deploy", "-i", path, "--plan", str(saved))
    assert (stopped.code, stopped.service()["verdict"]) == (3, "refused"), stopped.text
    shared_host.run("systemctl start kimi")
    assert invocation(shared_host) != running
    applied = servewright("deploy", "-i", path, "--plan", str(saved))
    assert (applied.code, applied.service()["verdict"]) == (0, "committed"), applied.text


def test_what_was_done_by_hand_stands_beside_what_is_declared(shared_host, declare):
    shared_host.run(
        "mkdir -p /run/systemd/system/kimi.service.d; "
        "printf '[Service]\\nEnvironment=NCCL_PROTO=Simple\\n' > /run/systemd/system/kimi.service.d/x.conf; "
        "systemctl daemon-reload; systemctl restart kimi; "
        "sed -i s/TimeoutStopSec=11/TimeoutStopSec=99/ /etc/systemd/system/kimi.service"
    )
    try:
        path = declare(**{**CHANGED, "environment": {"EXTRA": "3"}})
        changes = {c["field"]: c for c in servewright("plan", "-i", path).service()["changes"]}
    finally:
        shared_host.run("rm -r /run/systemd/system/kimi.service.d; systemctl daemon-reload; systemctl restart kimi")
    assert set(changes) == {
        "environment.EXTRA",
        "running environment.NCCL_PROTO",
        "unit file",
        "unit file Service.TimeoutStopSec",
        "unit loaded",
        "unit drop-in",
    }
    proto = changes["running environment.NCCL_PROTO"]
    assert (proto["old"], proto["new"], proto["consequence"]) == ("Simple", "LL", "restart")
    assert proto["source"]["origin"].startswith("profile pcie-ll-ring")
    timeout = changes["unit file Service.TimeoutStopSec"]
    assert (timeout["old"], timeout["new"], timeout["consequence"]) == ("99", "11", "reload")


DROP_IN = "/etc/systemd/system/kimi.service.d/x.conf"
WITH_DROP_IN = f"mkdir -p $(dirname {DROP_IN}) && printf '[Service]\\nEnvironment=NCCL_ALGO=Tree\\n' > {DROP_IN}"
PACKAGES = "/opt/servewright/engines/sglang-0.5.23/lib/python3.11/site-packages"
# What would change the next start, seen by neither systemd nor the running process; and its end.
MEANWHILE = [
    (WITH_DROP_IN, f"rm -r $(dirname {DROP_IN})"),
    (WITH_DROP_IN.replace("kimi.service.d", "service.d"), "rm -r /etc/systemd/system/service.d"),
    (f"cp -a {PACKAGES}/sglang /root/ && echo '# mine' >> {PACKAGES}/sglang/launch_server.py",
     f"rm -r {PACKAGES}/sglang && mv /root/sglang {PACKAGES}/"),
    ("echo x > /opt/simulator/model/notes.txt", "rm /opt/simulator/model/notes.txt"),
]  # fmt: skip


def test_a_saved_plan_is_not_applied_to_another_engine_model_or_drop_in(shared_host, declare, tmp_path):
    path, saved = declare(**{**CHANGED, "environment": {"EXTRA": "4"}}), tmp_path / "plan.json"
    before = invocation(shared_host)
    assert servewright("plan", "-i", path, "--out", str(saved)).code == 0
    for change, undo in MEANWHILE:
        shared_host.run(change)
        try:
            refused = servewright("deploy", "-i", path, "--plan", str(saved))
        finally:
            shared_host.run(undo)
        assert (refused.code, "the host has changed since the plan was made" in refused.text) == (3, True), refused.text
    assert invocation(shared_host) == before
    again = servewright("plan", "-i", path).service()
    assert again["fingerprint"] == json.loads(saved.read_text())["hosts"]["gpu1"]["services"][0]["fingerprint"]


def test_a_drop_in_that_the_process_has_not_taken_up_is_told_and_left(shared_host, declare):
    path = declare(**CHANGED)
    assert servewright("deploy", "-i", path).code == 0
    before = invocation(shared_host)
    shared_host.run(f"{WITH_DROP_IN} && systemctl daemon-reload")
    try:
        planned = servewright("plan", "-i", path, "--detailed-exitcode")
        (change,) = planned.service()["changes"]
        assert (planned.code, change["field"], change["old"], change["consequence"]) == (
            2, "unit drop-in", DROP_IN, "none"
        )  # fmt: skip
        assert servewright("deploy", "-i", path).service()["verdict"] == "unchanged"
        assert servewright("drift", "-i", path, "--repair").service()["verdict"] == "mended"
        assert servewright("plan", "-i", path, "--detailed-exitcode").code == 0
    finally:
        shared_host.run(f"rm -rf $(dirname {DROP_IN}); systemctl daemon-reload")
    assert invocation(shared_host) == before


UNIT = "/etc/systemd/system/kimi.service"


@pytest.mark.parametrize(
    ("change", "what"), [(f"rm {UNIT} && systemctl mask kimi", "a link to /dev/null"), (f": > {UNIT}", "empty")]
)
def test_a_unit_that_is_gone_is_one_line_of_a_plan(shared_host, declare, change, what):
    shared_host.run(f"cp -a {UNIT} /root/unit && {change}")
    try:
        planned = servewright("plan", "-i", declare(**CHANGED))
    finally:
        shared_host.run(f"rm {UNIT} && mv /root/unit {UNIT} && systemctl daemon-reload")
    (line,) = planned.service()["changes"]
    assert (line["field"], line["old"]) == ("unit file", f"{what}, which masks it")
    assert planned.code == 3, planned.text


def test_a_secret_is_changed_or_unchanged_and_nothing_more(shared_host, declare, tmp_path):
    def with_secret(value):
        return declare({"key": f"{CANARY}-{value}"}, **CHANGED, secrets={"KEY": {"variable": "key"}})

    assert servewright("deploy", "-i", with_secret("one")).code == 0
    saved, page, junit = tmp_path / "plan.json", tmp_path / "plan.html", tmp_path / "plan.xml"
    files = ["--out", str(saved), "--html", str(page), "--junit", str(junit)]
    done = servewright("plan", "-i", with_secret("two"), *files)
    (change,) = done.service()["changes"]
    assert (change["field"], change["old"], change["new"]) == ("secret KEY", "(secret)", "(secret, changed)")
    command = [BIN / "servewright", "plan", "-i", with_secret("two"), "--markdown"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    assert "secret KEY" in printed.stdout
    for text in (done.text, printed.stdout, saved.read_text(), page.read_text(), junit.read_text()):
        assert CANARY not in text

    # Not even a third value goes through as the one that was planned.
    other = servewright("deploy", "-i", with_secret("three"), "--plan", str(saved))
    assert (other.code, other.service()["verdict"]) == (3, "refused"), other.text
    assert servewright("deploy", "-i", with_secret("two"), "--plan", str(saved)).code == 0


def test_a_plan_that_does_not_know_all_hosts_is_not_applied(shared_host, inventory, tmp_path):
    reached, saved = shared_host.ansible_vars(), tmp_path / "plan.json"
    declared = {"servewright_services": [service(description="more")]}
    away = {**reached, "ansible_port": 23, "ansible_control_path": "none"}
    path = tmp_path / "two.yml"
    path.write_text(json.dumps({"llm": {"hosts": {"gpu1": reached, "gpu2": away}, "vars": declared}}))
    assert servewright("plan", "-i", str(path), "--out", str(saved)).code == 6
    refused = servewright("deploy", "-i", str(path), "--plan", str(saved))
    assert refused.code == 3, refused.text
    assert "hosts.gpu2" in refused.text
    assert refused.document["hosts"] == {}

    # With --limit the plan is whole; a host that is planned and gone is not passed over in silence.
    assert servewright("plan", "-i", str(path), "--limit", "gpu1", "--out", str(saved)).code == 0
    both = json.loads(saved.read_text())
    both["hosts"]["gone"] = both["hosts"]["gpu1"]
    saved.write_text(json.dumps(both))
    done = servewright("deploy", "-i", str(path), "--plan", str(saved))
    assert done.code == 1, done.text
    assert (done.service()["verdict"], done.document["hosts"]["gone"]["services"]) == ("committed", [])


def test_a_rollback_and_a_lost_host_are_reported_to_ci(shared_host, inventory, tmp_path):
    reached = shared_host.ansible_vars()
    away = {**reached, "ansible_port": 23, "ansible_control_path": "none"}
    path = tmp_path / "two.yml"
    secrets = {"KEY": {"variable": "key"}}
    bad = service(environment={"SIM_ATTENTION_BACKEND": "triton"}, secrets=secrets)
    variables = {"servewright_services": [bad], "key": CANARY}
    path.write_text(json.dumps({"llm": {"hosts": {"gpu1": reached, "gpu2": away}, "vars": variables}}))
    artifacts, made = tmp_path / "artifacts", [tmp_path / name for name in ("a.xml", "a.html", "a.md")]
    done = subprocess.run(
        [BIN / "ansible-runner", "run", ROOT, "-p", "playbooks/deploy.yml",
         "--inventory", path, "--artifact-dir", artifacts],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, env={**os.environ, "PATH": PATH},
    )  # fmt: skip
    assert done.returncode != 0
    xml, page, summary = made
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    report = servewright("report", str(artifacts), "--junit", str(xml), "--html", str(page), env=github)
    assert (report.code, report.service()["verdict"]) == (4, "rolled_back"), report.text
    root = ElementTree.parse(xml).getroot()
    assert root.find("testsuite[@name='gpu1 kimi']/testcase[@name='engine']/failure") is not None
    assert root.find("testsuite[@name='gpu2']/testcase[@name='unreachable']/error") is not None
    assert "attention_backend" in page.read_text()
    assert "Steps of the transaction over time" in page.read_text()
    assert "::error title=gpu1 kimi%3A gate engine::" in report.text
    assert "gpu2" in summary.read_text()
    for text in (report.text, *(file.read_text() for file in made)):
        assert CANARY not in text
