"""Running a playbook: what comes back, what is left behind, and how it is stopped. Uses the real ansible-runner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servewright.driver.collect import Collector
from servewright.driver.playbook import TICK, Job, Playbook
from servewright.driver.progress import Progress
from servewright.driver.results import RunResult

Inventory = Callable[..., str]
ANSWER = {"command": "deploy", "problems": [], "services": [{"service": "kimi", "verdict": "committed"}]}


def run(inventory: str, *arguments: str, **options: Any) -> tuple[RunResult, list[Progress], list[dict[str, Any]]]:
    collector = Collector("deploy")
    progress, results = [], []
    with Playbook(Job(["-i", inventory, *arguments, "servewright.llm.deploy"], **options)) as playbook:
        for items in playbook:
            for item in items:
                if isinstance(item, Progress):
                    progress.append(item)
                    continue
                collector.feed(item)
                if item["event"].startswith("runner_on_") and item["event"] != "runner_on_start":
                    results.append(item["event_data"]["res"])
    return collector.result(playbook.rc, playbook.failure, playbook.interrupted), progress, results


def gone(pid: int) -> bool:
    """Whether a process ends within some seconds; one that only waits to be reaped counts as ended."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def wait_for(path: Path) -> int:
    for _ in range(300):
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.1)
    raise AssertionError(f"{path} was not written")


def test_results_and_progress_arrive_and_nothing_is_left(inventory: Inventory, tmp_path: Path) -> None:
    steps = [{"service": "kimi", "step": step, "elapsed": 1.5, "line": "x"} for step in ("starting", "loading")]
    result, progress, _ = run(inventory(fake_result={"changed": True, "servewright": ANSWER}, fake_progress=steps))

    assert result.error == ""
    assert result.hosts["gpu1"].services == ANSWER["services"]
    assert result.hosts["gpu1"].changed
    assert [(p.host, p.service, p.step, p.elapsed) for p in progress] == [
        ("gpu1", "kimi", "starting", 1.5),
        ("gpu1", "kimi", "loading", 1.5),
    ]
    assert list((tmp_path / "runtime").iterdir()) == []


def test_a_large_result_is_not_dropped(inventory: Inventory) -> None:
    # ansible-runner empties results of more than 700 kB unless told otherwise, and logs may be longer.
    result, _, results = run(inventory(fake_result={"servewright": ANSWER}, fake_size=2_000_000))

    assert len(results[0]["padding"]) == 2_000_000
    assert result.hosts["gpu1"].services


def test_ansible_runs_in_the_current_folder_with_its_own_settings(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANSIBLE_HOST_KEY_CHECKING", raising=False)
    (tmp_path / "ansible.cfg").write_text("[defaults]\ninventory = from_cfg.yml\n")
    Path(inventory(fake_environment=["ANSIBLE_HOST_KEY_CHECKING"])).rename(tmp_path / "from_cfg.yml")
    collector = Collector("deploy")
    environment: dict[str, Any] = {}
    with Playbook(Job(["servewright.llm.deploy"])) as playbook:
        for items in playbook:
            for item in items:
                assert isinstance(item, dict)
                collector.feed(item)
                environment |= (item.get("event_data", {}).get("res") or {}).get("environment", {})

    # The host comes from the inventory that ansible.cfg names; ansible-runner has not turned host keys off.
    assert list(collector.hosts) == ["gpu1"]
    assert environment == {"ANSIBLE_HOST_KEY_CHECKING": None}


def test_kept_artifacts_do_not_hold_the_environment(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "CANARY_123")
    run(inventory(fake_result={"servewright": ANSWER}), keep_artifacts=True)

    kept = [path for path in (tmp_path / "runtime").rglob("*") if path.is_file()]
    assert any("kimi" in path.read_text() for path in kept)
    assert not [path for path in kept if "CANARY_123" in path.read_text()]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "runtime").iterdir()} == {0o700}


def test_ctrl_c_ends_ansible_and_its_workers(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "worker"
    terminate = Playbook._terminate

    def slowly(playbook: Playbook) -> None:
        # On a busy machine the handler of the signal takes longer than the wait that it interrupts.
        time.sleep(2 * TICK)
        terminate(playbook)

    monkeypatch.setattr(Playbook, "_terminate", slowly)

    def press_ctrl_c() -> None:
        wait_for(pid_file)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_ctrl_c).start()
    before = signal.getsignal(signal.SIGINT)
    result, _, _ = run(inventory(fake_sleep=600, fake_pid_file=str(pid_file)))

    assert result.interrupted == signal.SIGINT
    assert result.error == ""
    assert gone(wait_for(pid_file))
    assert signal.getsignal(signal.SIGINT) is before
    assert list((tmp_path / "runtime").iterdir()) == []


def test_ctrl_c_before_ansible_has_begun_keeps_it_from_beginning(inventory: Inventory, tmp_path: Path) -> None:
    pid_file = tmp_path / "worker"
    path = inventory(fake_sleep=600, fake_pid_file=str(pid_file))
    with Playbook(Job(["-i", path, "servewright.llm.deploy"])) as playbook:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in playbook:
            pass

    assert playbook.interrupted == signal.SIGINT
    assert not pid_file.exists()


def test_what_keeps_ansible_runner_from_running_is_told(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    assert "/nowhere/python" in run(inventory())[0].error


def test_a_signal_that_is_ignored_ends_nothing(inventory: Inventory, tmp_path: Path) -> None:
    pid_file = tmp_path / "worker"

    def close_terminal() -> None:
        wait_for(pid_file)
        os.kill(os.getpid(), signal.SIGHUP)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        threading.Thread(target=close_terminal).start()
        variables = {"fake_sleep": 1, "fake_pid_file": str(pid_file), "fake_result": {"servewright": ANSWER}}
        result, _, _ = run(inventory(**variables))
    finally:
        signal.signal(signal.SIGHUP, before)

    assert result.interrupted == 0
    assert result.hosts["gpu1"].services


def test_when_it_is_killed_ansible_and_its_workers_end_too(inventory: Inventory, tmp_path: Path) -> None:
    pid_file = tmp_path / "worker"
    job = ["-i", inventory(fake_sleep=600, fake_pid_file=str(pid_file)), "servewright.llm.deploy"]
    code = (
        "from servewright.driver.playbook import Job, Playbook\n"
        f"with Playbook(Job({job!r})) as playbook:\n    for items in playbook: pass\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", code])
    worker = wait_for(pid_file)
    (ansible,) = (int(path.read_text()) for path in (tmp_path / "runtime").glob("*/pid"))
    driver.kill()
    driver.wait()

    assert gone(ansible)
    assert gone(worker)


def test_an_error_in_the_block_ends_ansible(inventory: Inventory, tmp_path: Path) -> None:
    pid_file = tmp_path / "worker"
    job = Job(["-i", inventory(fake_sleep=600, fake_pid_file=str(pid_file)), "servewright.llm.deploy"])

    def fail() -> None:
        with Playbook(job):
            raise ZeroDivisionError(wait_for(pid_file))

    with pytest.raises(ZeroDivisionError) as error:
        fail()
    worker = error.value.args[0]

    assert gone(worker)
    assert list((tmp_path / "runtime").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--limit", "nosuch"], "no host of the inventory matches --limit"),
        (["--nosuch"], "Ansible does not take these options: unrecognized arguments: --nosuch"),
        (["-e", "@missing.yml"], "missing.yml"),
        (["-e", "{bad"], "YAML parsing failed"),
    ],
)
def test_what_ansible_refuses_is_an_error_of_the_run(inventory: Inventory, arguments: list[str], expected: str) -> None:
    result, _, _ = run(inventory(fake_result={"servewright": ANSWER}), *arguments)

    assert expected in result.error
    assert "\n" not in result.error
    assert result.hosts == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all:\n  hosts:\n   gpu1: {\n", r"the inventory cannot be read: YAML parsing failed.*\(.*/hosts\.yml:4:1\)"),
        ("all:\n  hosts:\n", "no host to work on"),
        ("all: [\n", "the inventory cannot be read"),
    ],
)
def test_an_inventory_without_hosts_is_an_error_of_the_run(inventory: Inventory, text: str, expected: str) -> None:
    path = inventory()
    Path(path).write_text(text)
    with pytest.raises(AssertionError, match=expected):
        raise AssertionError(run(path)[0].error)


def test_a_value_that_cannot_be_decrypted_names_its_place(inventory: Inventory) -> None:
    path = Path(inventory())
    vault = "            fake_secret: !vault |\n              $ANSIBLE_VAULT;1.1;AES256\n              6162\n"
    path.write_text("all:\n    hosts:\n        gpu1:\n            ansible_connection: local\n" + vault)
    result, _, _ = run(str(path))

    assert "--ask-vault-pass" in result.hosts["gpu1"].error
    assert "hosts.yml:5" in result.hosts["gpu1"].error


def test_a_host_that_does_not_answer_is_unreachable(inventory: Inventory) -> None:
    path = Path(inventory())
    path.write_text("{all: {hosts: {gpu1: {ansible_host: 127.0.0.1, ansible_port: 1}}}}")
    (path.parent / "ansible_collections/servewright/llm/playbooks/deploy.yml").write_text(
        "- {hosts: all, gather_facts: false, tasks: [{ansible.builtin.ping: }]}"
    )
    result, _, _ = run(str(path))

    assert result.hosts["gpu1"].unreachable
    assert "no SSH connection: connect to host 127.0.0.1 port 1: Connection refused" in result.hosts["gpu1"].error
