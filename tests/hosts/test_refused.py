"""Bad input and bad hosts: refused with the right exit code before anything on the host is touched."""

from __future__ import annotations

import pytest

from tests.hosts.commands import servewright, service

TRACES = "/etc/servewright /var/lib/servewright /usr/local/lib/servewright /etc/systemd/system/kimi.service"


def untouched(host) -> bool:
    return host.run(f"ls -d {TRACES}", check=False).stdout == ""


PREFLIGHT = [
    ({"model": {"path": "/models/none", "served_name": "x"}}, "", "there is no model folder /models/none"),
    ({"version": "9.9.9"}, "", "/opt/servewright/engines/sglang-9.9.9/bin/python is missing"),
    ({"gpus": [8], "parallelism": {"tensor": 1}}, "", "GPU 8 is not there; nvidia-smi lists 0, 1, 2, 3, 4, 5, 6, 7"),
    ({}, "systemctl mask kimi.service", "kimi.service is masked"),
    (
        {},
        "printf '[Service]\\nExecStart=/bin/true\\n' > /etc/systemd/system/kimi.service",
        "was not written by servewright",
    ),
    ({}, "chmod 700 /opt/simulator/model", "cannot read /opt/simulator/model/config.json"),
    ({}, "chmod 700 /opt/servewright/engines", "user llm-kimi cannot run /opt/servewright/engines/sglang-0.5.23/bin"),
    ({"listen": {"port": 22}}, "", "port 22 of 127.0.0.1 is held by"),
    ({"secrets": {"KEY": {"file": "/etc/nothing"}}}, "", "secret KEY: there is no file /etc/nothing"),
    ({"secrets": {"KEY": {"file": "/bin/true"}}}, "", "secret KEY: /bin/true is not text"),
]


@pytest.fixture(scope="module")
def shared_host(testbed, simulator):
    """One host for refusals: none of them changes it."""
    host = testbed.boot("gpu1", prepare=simulator)
    yield host
    testbed.destroy(host)


@pytest.mark.parametrize(("changes", "before", "message"), PREFLIGHT, ids=[row[2][:40] for row in PREFLIGHT])
def test_preflight_refuses(shared_host, inventory, changes, before, message):
    undo = "systemctl unmask -q kimi.service; rm -f /etc/systemd/system/kimi.service; "
    undo += "chmod 755 /opt/simulator/model /opt/servewright/engines"
    try:
        if before:
            shared_host.run(before)
        traces = shared_host.run(f"ls -d {TRACES}", check=False).stdout
        done = servewright(
            "deploy", "-i", str(inventory([shared_host], variables={"servewright_services": [service(**changes)]}))
        )
        assert message in done.text
        assert done.code == 3
        assert shared_host.run(f"ls -d {TRACES}", check=False).stdout == traces
    finally:
        shared_host.run(undo)


def test_a_bad_declaration_is_refused_with_file_and_line(shared_host, inventory):
    path = inventory([shared_host], variables={"servewright_services": [service(enigne="x")]})
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "enigne" in text)
    for command in ("validate", "deploy"):
        done = servewright(command, "-i", str(path))
        assert done.code == 3, done.text
        assert "unknown key 'enigne'" in done.text
        assert done.text.count(str(path)) >= 1
        assert f'"line": {line}' in done.text
    assert untouched(shared_host)


@pytest.mark.parametrize("where", [{"host": "127.0.0.2", "port": 30000}, {"host": "localhost", "port": 30007}])
def test_two_services_that_would_meet_at_a_port_are_refused_before_the_first_is_deployed(
    shared_host, inventory, where
):
    two = [
        service(gpus=[0], parallelism={"tensor": 1}, options={"nccl_port": 30007}),
        service(name="other", gpus=[1], parallelism={"tensor": 1}, listen=where),
    ]
    done = servewright("deploy", "-i", str(inventory([shared_host], variables={"servewright_services": two})))
    assert done.code == 3, done.text
    assert f"{where['port']} is also the " in done.text
    assert untouched(shared_host)


def test_one_bad_service_of_a_host_stops_all_of_them(shared_host, inventory):
    two = [
        service(gpus=[0], parallelism={"tensor": 1}),
        service(name="other", gpus=[1], parallelism={"tensor": 1}, listen={"port": 2}, version="9.9.9"),
    ]
    done = servewright("deploy", "-i", str(inventory([shared_host], variables={"servewright_services": two})))
    assert done.code == 3, done.text
    assert [done.service(number=n)["verdict"] for n in (0, 1)] == ["refused", "refused"]
    assert untouched(shared_host)


def test_an_unreachable_host(inventory, shared_host):
    path = inventory([shared_host], variables={"servewright_services": [service()]},
                     host_variables={"gpu1": {"ansible_port": 23, "ansible_control_path": "none"}})  # fmt: skip
    done = servewright("deploy", "-i", str(path))
    assert done.code == 6, done.text


def test_a_user_without_sudo(shared_host, inventory):
    shared_host.run("id plain || useradd -m plain; install -d -m700 -o plain /home/plain/.ssh; "
                    "install -m600 -o plain /root/.ssh/authorized_keys /home/plain/.ssh/")  # fmt: skip
    path = inventory([shared_host], variables={"servewright_services": [service()]},
                     host_variables={"gpu1": {"ansible_user": "plain", "ansible_control_path": "none"}})  # fmt: skip
    done = servewright("deploy", "-i", str(path))
    assert done.code == 1, done.text
    assert "sudo" in done.text
    assert "Traceback" not in done.text
    assert untouched(shared_host)


def test_a_host_without_systemd(shared_host, inventory):
    shared_host.run("mv /run/systemd/system /run/systemd/elsewhere")
    try:
        done = servewright(
            "deploy", "-i", str(inventory([shared_host], variables={"servewright_services": [service()]}))
        )
    finally:
        shared_host.run("mv /run/systemd/elsewhere /run/systemd/system")
    assert done.code == 3, done.text
    assert "systemd is not PID 1" in done.text
    assert untouched(shared_host)


def test_a_hand_written_unit_is_named_and_goes_on_until_it_is_stopped(shared_host, inventory):
    path = str(inventory([shared_host], variables={"servewright_services": [service()]}))
    engine = (
        "/opt/servewright/engines/sglang-0.5.23/bin/python -m sglang.launch_server --model-path /opt/simulator/model"
        " --served-model-name kimi-k2.5 --tp-size 8 --port 30000 --context-length 131072"
    )
    shared_host.run(f"systemd-run --quiet --unit old --setenv NCCL_PROTO=LL {engine}")
    try:
        shared_host.run("timeout 60 bash -c 'until : < /dev/tcp/127.0.0.1/30000; do sleep 0.2; done' 2> /dev/null")
        done = servewright("deploy", "-i", path)
        assert done.code == 3, done.text
        checks = [check for check in done.service()["checks"] if not check["passed"] and check["severity"] == "fatal"]
        assert {check["id"] for check in checks} == {"gpus", "port"}, "everything else can be found out beforehand"
        assert "systemctl disable --now old.service" in done.text
        assert shared_host.run("systemctl is-active old").stdout == "active\n"
        assert untouched(shared_host)
    finally:
        shared_host.run("systemctl stop old", check=False)
