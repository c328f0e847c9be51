"""Engines and hosts that misbehave during a deploy: the old release serves again, and the result says why."""

from __future__ import annotations

import contextlib
import time

import pytest

from tests.hosts.commands import invocation
from tests.hosts.faults import FORWARD, FaultyLibrary, check, settled
from tests.hosts.faults import release as small


@pytest.fixture(scope="module")
def library(testbed, simulator):
    """One host, on which the release `small()` is committed before and after each trouble."""
    host = testbed.boot("trouble", prepare=simulator)
    found = FaultyLibrary(host)
    result = found.deploy(small())
    assert result["verdict"] == "committed", result
    yield found
    testbed.destroy(host)


@pytest.fixture(scope="module")
def vllm(testbed, simulator):
    host = testbed.boot("trouble-vllm", prepare=simulator)
    found = FaultyLibrary(host)
    result = found.deploy(small(engine="vllm", options={}))
    assert result["verdict"] == "committed", result
    yield found
    testbed.destroy(host)


UNMEASURED = {"performance": {"enabled": False}}
STALL = {"verify": {"stable": 0.5, "load_timeout": 30, "stall_timeout": 3, "request_timeout": 5, **UNMEASURED}}
LATE = {"verify": {"stable": 4, "load_timeout": 30, "stall_timeout": 20, "request_timeout": 5, **UNMEASURED}}
TROUBLES = [
    ({"SIM_EXIT_AFTER": "0", "SIM_EXIT_CODE": "3"}, {}, "the engine ended while loading: exit code 3"),
    ({"SIM_LOAD_SECONDS": "20", "SIM_EXIT_AFTER": "3"}, {}, "the engine ended while loading"),
    ({"SIM_EXIT_WHEN_READY_AFTER": "2"}, LATE, "the unit restarted|gate stable failed"),
    ({"SIM_NEVER_READY": "1"}, STALL, "loading has stalled|not ready after"),
    ({"SIM_STALL_AT": "30"}, STALL, "loading has stalled: no new log line, bytes read or GPU memory"),
    ({"SIM_POST_HANGS": "1"}, STALL, "loading has stalled|not ready after"),
    ({"SIM_WRONG_NAME": "1"}, {}, "gate identity failed"),
    ({"SIM_EMPTY_ANSWER": "1"}, {}, "gate answers failed"),
    ({"SIM_GARBAGE": "1"}, {}, "gate answers failed"),
    ({"SIM_ATTENTION_BACKEND": "triton"}, {}, "attention_backend is triton, declared is flashinfer"),
]


@pytest.mark.failure("3.5", "3.6")
@pytest.mark.parametrize(("environment", "changes", "message"), TROUBLES, ids=["+".join(row[0]) for row in TROUBLES])
def test_3_5_and_3_6_a_release_that_misbehaves_is_rolled_back(library, environment, changes, message):
    result = library.deploy(small(environment, **changes))
    assert result["verdict"] == "rolled_back", result
    assert any(part in result["message"] for part in message.split("|")), result["message"]
    assert [step["again"] for step in result["steps"] if "again" in step] == []
    check(library, small())


@pytest.mark.parametrize(("code", "started_again"), [(2, False), (1, True)])
def test_systemd_starts_again_what_may_succeed_and_not_what_refuses_its_arguments(library, code, started_again):
    host = library.host
    folder = "/run/systemd/system/kimi.service.d"
    drop_in = f"[Service]\\nEnvironment=SIM_EXIT_AFTER=0 SIM_EXIT_CODE={code}\\n"
    host.run(f"mkdir {folder}; printf '{drop_in}' > {folder}/end.conf; systemctl daemon-reload; systemctl restart kimi")
    end = time.monotonic() + 120
    while (state := library.status()["state"])["active"] != "failed" and not state["restarts"]:
        assert time.monotonic() < end, state
    found = library.call("verify", "kimi")
    host.run(f"rm -r {folder}; systemctl daemon-reload; systemctl reset-failed kimi; systemctl restart kimi")
    assert (state["restarts"] > 0, found["verdict"]) == (started_again, "failed"), (state, found)
    while library.call("verify", "kimi")["verdict"] != "ok":
        assert time.monotonic() < end, library.status()


@pytest.mark.failure("8.7")
@pytest.mark.failure("7.6")
def test_7_6_and_8_7_a_silent_but_moving_load_is_waited_for(library):
    """No log line for longer than the stall limit, but the weights are being read."""
    release = small({"SIM_LOAD_SECONDS": "6", "SIM_SILENT_LOAD": "1"}, **STALL)
    result = library.deploy(release)
    assert result["verdict"] == "committed", result
    assert library.deploy(small())["verdict"] == "committed"


def test_an_engine_that_ignores_sigterm_is_stopped_and_replaced(library):
    stubborn = small({"SIM_IGNORE_SIGTERM": "1"}, limits={"stop_timeout": 2, "gpu_wait": 20, "start_timeout": 60})
    assert library.deploy(stubborn)["verdict"] == "committed"
    assert library.deploy(small())["verdict"] == "committed"
    check(library, small())


@pytest.mark.parametrize("kept", ["port", "both"])
def test_a_child_that_leaves_the_process_tree_does_not_survive_the_stop(library, kept):
    assert library.deploy(small({"SIM_ORPHAN": kept}))["verdict"] == "committed"
    assert library.deploy(small())["verdict"] == "committed"
    check(library, small())


def test_gpu_memory_that_lingers_is_waited_for(library):
    assert library.deploy(small({"SIM_GPU_LINGER": "3"}))["verdict"] == "committed"
    result = library.deploy(small())
    assert result["verdict"] == "committed", result
    times = {step["step"]: step["time"] for step in result["steps"]}
    assert times["waiting_gpus"][:19] != times["starting"][:19]


def test_a_worker_killed_under_a_running_service_restarts_it(vllm):
    """vLLM's main process exits 0 then; Restart=on-failure would leave the service down."""
    before = invocation(vllm.host)
    vllm.host.run("pkill -KILL -f [V]LLM::Worker")
    end = time.monotonic() + 60
    while invocation(vllm.host) == before or vllm.call("verify", "kimi")["verdict"] != "ok":
        assert time.monotonic() < end, vllm.host.run("systemctl status kimi", check=False).stdout
        time.sleep(0.5)


@contextlib.contextmanager
def small_disk(host, folder):
    """A small file system of its own for the releases and units (`etc`) or the journals (`var`)."""
    folders = {"etc": ["etc/servewright", "etc/systemd/system"], "var": ["var/lib/servewright"]}[folder]
    host.run("mkdir -p /mnt/small; mount -t tmpfs -o size=12M small /mnt/small")
    for name in folders:
        host.run(
            f"mkdir -p /mnt/small/{name}; cp -a /{name}/. /mnt/small/{name}/; mount --bind /mnt/small/{name} /{name}"
        )
    try:
        yield
    finally:
        host.run("rm -f /mnt/small/ballast")
        for name in folders:
            host.run(f"umount /{name}; rm -rf /{name}; cp -a /mnt/small/{name} /{name}")
        host.run("umount /mnt/small; systemctl daemon-reload")


FILL = "dd if=/dev/zero of=/mnt/small/ballast bs=64k 2>/dev/null; true"


@pytest.mark.parametrize("step", FORWARD)
@pytest.mark.parametrize("folder", ["etc", "var"])
def test_a_disk_that_fills_up_does_not_stop_the_way_back(library, folder, step):
    """The file system of the releases and units, or of the journals, is full from a step on."""
    host, new = library.host, small({"TEST_MARK": f"{step}-{folder}"})
    with small_disk(host, folder):
        library.stop_at(new, step)
        host.run(f"{FILL}; rm -f /var/tmp/stop*")
        result = settled(library)
        assert result["verdict"] in ("rolled_back", "committed"), result
        host.run("rm /mnt/small/ballast")
        check(library, new if result["verdict"] == "committed" else small())
        assert library.deploy(small())["verdict"] in ("committed", "unchanged")


@pytest.mark.parametrize("folder", ["etc", "var"])
def test_a_disk_that_is_full_before_a_deploy_leaves_one_release_running(library, folder):
    host, new = library.host, small({"TEST_MARK": f"full-{folder}"})
    with small_disk(host, folder):
        host.run(FILL)
        (begun,) = library.begin(new)
        result = settled(library) if begun["verdict"] == "running" else begun
        assert result["verdict"] in ("error", "refused", "rolled_back", "committed"), result
        host.run("rm /mnt/small/ballast")
        check(library, new if result["verdict"] == "committed" else small())
        assert library.deploy(small())["verdict"] in ("committed", "unchanged")


def test_a_service_is_displaced_by_one_that_claims_its_gpu_and_comes_back_when_that_fails(library):
    """How one host moves from one engine to another and back: two services, one claim."""
    other = {"name": "other", "listen": {"port": 30001}, "options": {}}
    plan = library.call("deploy", [small(engine="vllm", **other)], {}, True)[0]
    assert {"field": "service kimi", "old": "running", "new": "stopped", "consequence": "stop"} in plan["changes"]

    failed = library.deploy(small({"SIM_EXIT_AFTER": "0"}, engine="vllm", **other))
    assert (failed["verdict"], "kimi serves again" in failed["message"]) == ("rolled_back", True), failed
    check(library, small())

    moved = library.deploy(small(engine="vllm", **other))
    assert moved["verdict"] == "committed", moved
    assert (
        library.host.run("systemctl is-active kimi; systemctl is-enabled kimi", check=False).stdout
        == "inactive\ndisabled\n"
    )
    assert library.call("verify", "other")["verdict"] == "ok"

    back = library.deploy(small())
    assert back["verdict"] == "committed", back
    check(library, small())
    library.host.run("systemctl reset-failed; rm -rf /etc/servewright/other /var/lib/servewright/other")


def test_two_deploys_at_once_do_not_mix(library):
    (first,) = library.begin(small({"TEST_MARK": "first"}))
    (second,) = library.begin(small({"TEST_MARK": "second"}))
    assert second["verdict"] == "busy"
    assert "a transaction of kimi is under way" in second["message"]
    assert library.settle(first)["verdict"] == "committed"
    waited = library.call("deploy", [small()], {}, False, "tester", "", 30)[0]
    assert library.settle(waited)["verdict"] == "committed"


def test_the_lock_of_a_dead_holder_is_taken_over_with_a_note(library):
    holder = '{"owner": "ci@runner", "pid": 999999, "reason": "nightly", "since": "2026-01-01T00:00:00.000+00:00"}'
    library.host.run(f"mkdir -p /run/servewright; echo '{holder}' > /run/servewright/kimi.lock")
    result = library.deploy(small({"TEST_MARK": "lock"}))
    assert result["steps"][0]["notes"] == [
        "took over the lock of kimi, which was held by ci@runner since 2026-01-01T00:00:00.000+00:00, pid 999999, "
        "for: nightly and is dead"
    ]
    assert library.deploy(small())["verdict"] == "committed"


@pytest.mark.failure("8.14")
def test_8_14_history_is_kept_short_and_never_loses_the_way_back(library):
    for mark in ("a", "b", "c"):
        release = small({"TEST_MARK": mark}, keep={"releases": 2, "days": 1})
        assert library.deploy(release)["verdict"] == "committed"
    folders = library.host.run("ls /etc/servewright/kimi/releases").stdout.split()
    assert len(folders) == 2
    back = library.settle(library.call("rollback", "kimi", None, "tester", "", 0))
    assert (back["verdict"], back["release"]) == ("committed", int(folders[0]))
    assert library.deploy(small())["verdict"] == "committed"


def test_a_rollback_that_fails_too_says_what_to_do(library):
    """The old release's engine is gone meanwhile: nothing is left that could serve."""
    old = library.status()["release"]
    library.stop_at(small({"SIM_EXIT_AFTER": "0"}, version="0.5.22"), "stopping")
    library.host.run("mv /opt/servewright/engines/sglang-0.5.23 /opt/away; rm -f /var/tmp/stop*")
    result = settled(library)
    library.host.run("mv /opt/away /opt/servewright/engines/sglang-0.5.23")
    assert result["verdict"] == "rollback_failed", result
    assert any("journalctl -u kimi.service" in step for step in result["next_steps"])
    assert library.status()["release"] == old
    end = time.monotonic() + 60
    while library.deploy(small())["verdict"] not in ("committed", "unchanged") or (
        library.call("verify", "kimi")["verdict"] != "ok"  # its unit may have started it again meanwhile
    ):
        assert time.monotonic() < end, library.status()
    check(library, small())


@pytest.mark.parametrize("damage", ["journal", "release", "pointer"])
def test_what_was_edited_by_hand_is_named_and_not_guessed_at(library, damage):
    number = library.status()["release"]
    path = {
        "journal": "$(ls /var/lib/servewright/kimi/transactions/*.jsonl | tail -1)",
        "release": f"/etc/servewright/kimi/releases/{number}/release.json",
        "pointer": "/var/lib/servewright/kimi/committed.json",
    }[damage]
    library.host.run(f"cp {path} /root/whole; sed -i 's/1/7/' {path}")
    try:
        (result,) = library.begin(small({"TEST_MARK": "damage"}))
        assert (result["verdict"], "edited by hand" in result["message"]) == ("error", True), result
        assert library.host.run("systemctl is-active kimi").stdout == "active\n"
    finally:
        library.host.run(f"cp /root/whole {path}")
    check(library, small())


@pytest.mark.failure("6.10")
def test_6_10_a_drop_in_is_named_and_what_it_changes_fails_the_gates(library):
    folder = "/etc/systemd/system/kimi.service.d"
    drop_in = r"printf '[Service]\nEnvironment=ADDED=1\n'"
    library.host.run(f"mkdir {folder}; {drop_in} > {folder}/zz-old.conf; systemctl daemon-reload")
    (begun,) = library.begin(small({"TEST_MARK": "drop-in"}))
    (named,) = [entry for entry in begun["checks"] if entry["id"] == "drop_ins"]
    assert (named["severity"], named["passed"]) == ("warning", False)
    assert f"{folder}/zz-old.conf changes the unit" in named["message"]
    result = library.settle(begun)
    library.host.run(f"rm -r {folder}; systemctl daemon-reload")
    assert "environment.ADDED of the running process" in result["message"]
    assert result["verdict"] == "rollback_failed"  # it breaks the old release just the same
    assert library.deploy(small())["verdict"] == "committed"
