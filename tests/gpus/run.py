"""Deploys, breaks and verifies a real engine on this host, by the command line, as its users do. run.py CONFIG OUT"""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CONFIG = json.loads(Path(sys.argv[1]).read_text())
OUT = Path(sys.argv[2])
NAME = CONFIG["service"]["name"]
BEGIN = time.monotonic()
BIN = Path(sys.executable).parent
INVENTORY = OUT / "hosts.yml"
RESULTS: list[dict[str, Any]] = []
ON_GPU = "import time, torch; x = torch.ones(1 << 30, device='cuda:1'); torch.cuda.synchronize()"


def left() -> float:
    return float(CONFIG["budget"] - (time.monotonic() - BEGIN))


def shell(command: str) -> str:
    return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60).stdout


def declare(**changes: Any) -> None:
    """Write the inventory; a change is named by its path, with "__" between the keys. None takes a key away."""
    service = copy.deepcopy(CONFIG["service"])
    for path, value in changes.items():
        at, (*way, last) = service, path.split("__")
        for key in way:
            at = at.setdefault(key, {})
        at.pop(last, None)
        if value is not None:
            at[last] = value
    host = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "/usr/bin/python3",
        "servewright_host": CONFIG["host"],
        "servewright_services": [service],
    }
    INVENTORY.write_text(json.dumps({"all": {"hosts": {"gpu-host": host}}}, indent=1))


def servewright(title: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Run a command, keep its whole answer, print what matters; gives exit code and the service's result."""
    begin = time.monotonic()
    done = subprocess.run(
        [str(BIN / "servewright"), *words, "-i", str(INVENTORY), "--json"],
        capture_output=True,
        text=True,
        timeout=max(30, left()),
        env={"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": "/root", "LANG": "C.UTF-8", "NO_COLOR": "1"},
    )
    seconds = round(time.monotonic() - begin, 1)
    document: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {"text": done.stdout}
    RESULTS.append({"title": title, "words": words, "code": done.returncode, "seconds": seconds, "answer": document})
    (OUT / "results.json").write_text(json.dumps(RESULTS, indent=1))
    hosts = list(document.get("hosts", {}).values())
    service: dict[str, Any] = (hosts[0].get("services") or [{}])[0] if hosts else {}
    verdict, message = service.get("verdict"), service.get("message", "")
    print(f"== {title}: exit {done.returncode}, {seconds} s, {verdict}: {message[:300]}")
    for name in ("gates", "rollback_gates"):
        for gate in service.get(name, []):
            told = f"{gate['id']:14} {gate['verdict']:8} {gate['seconds']:7.2f} s  {gate['message'][:140]}"
            print(f"   {name[:-1]} {told}")
    for check in service.get("checks", []):
        if not check["passed"]:
            print(f"   check {check['id']:13} {check['severity']:8} {check['message'][:200]}")
    for line in service.get("log", [])[-10:]:
        print("   |", line[:180])
    if not service:
        print(done.stdout[-2000:], done.stderr[-2000:])
    return done.returncode, service


def processes() -> set[int]:
    """Processes of the service, from its control group."""
    group = shell(f"systemctl show {NAME} --value --property ControlGroup").strip()
    for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd"):
        path = Path(f"{top}{group}/cgroup.procs")
        if group and path.exists():
            return {int(pid) for pid in path.read_text().split()}
    return set()


def shared_memory() -> list[str]:
    return sorted(path.name for path in Path("/dev/shm").iterdir())


def holder(code: str) -> subprocess.Popen[bytes]:
    """Another process of the host, which says when it holds what it is to hold."""
    python = CONFIG["service"]["venv"] + "/bin/python"
    code += "\nprint('up', flush=True)\ntime.sleep(600)"
    process = subprocess.Popen([python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def deploy() -> None:
    declare()
    code, _service = servewright("deploy", "deploy")
    print(shell(f"systemctl status {NAME} --no-pager -n 0; ls -l /dev/shm"))
    if code:
        sys.exit("the first deploy failed")
    servewright("the same again", "deploy")


def wrong_flag() -> None:
    declare(extra_args__no_such_flag="1")
    servewright("a flag the engine does not have", "deploy")


def foreign() -> None:
    declare(environment__MARK="foreign")
    other = holder(ON_GPU)
    servewright("a foreign process on a GPU", "deploy")
    other.kill()
    other.wait()


def killed_in_the_load() -> None:
    """A transaction that nobody follows, whose engine loses its youngest process while it loads.

    Then a process that is no service's takes memory of a GPU for 20 seconds: the way back has to wait for it.
    """
    declare(environment__MARK="killed")
    other = holder(
        "import sys, time, torch\nprint('up', flush=True)\nsys.stdin.readline()\n"
        "x = torch.ones(1 << 28, device='cuda:1')\ntorch.cuda.synchronize()\ntime.sleep(20)\nsys.exit()"
    )
    before = processes()
    servewright("deploy, detached", "deploy", "--detach")
    while left() > 60:
        new = processes() - before
        if len(new) >= CONFIG["loading_processes"]:  # the main process has started its workers
            time.sleep(3)
            victim = max(new & processes())
            print("killing", shell(f"tr '\\0' ' ' < /proc/{victim}/cmdline"))
            os.kill(victim, signal.SIGKILL)
            assert other.stdin is not None
            other.stdin.write(b"\n")
            other.stdin.flush()
            break
        time.sleep(0.1)
    servewright("killed in the load", "follow", NAME)
    other.kill()
    other.wait()


def leftovers() -> None:
    """SIGKILL of every process; a live segment of a name like theirs must stay.

    Another process holds memory of a GPU for 20 seconds more, as one does that is slow to end: the next start waits.
    """
    declare()
    lingering = CONFIG["service"].get("gpus") and holder(ON_GPU)
    other = holder(
        "import mmap, os, time\n"
        "f = os.open('/dev/shm/psm_0badcafe', os.O_CREAT | os.O_RDWR, 0o600)\n"
        "os.ftruncate(f, 1 << 20)\nm = mmap.mmap(f, 1 << 20)"
    )
    before = processes()
    print(f"killing {len(before)} processes; /dev/shm: {shared_memory()}")
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    if lingering:
        time.sleep(20)
        lingering.kill()
        lingering.wait()
    begin, url = time.monotonic(), f"http://127.0.0.1:{CONFIG['service']['listen']['port']}/health"
    while shell(f"curl -s -o /dev/null -m 5 -w '%{{http_code}}' {url}") != "200" and left() > 20:
        time.sleep(1)
    print(f"serves again after {time.monotonic() - begin:.0f} s; /dev/shm: {shared_memory()}")
    print(shell("journalctl --no-pager -o cat | grep -E 'removed dead|GPU [0-9]'"))
    servewright("verify after SIGKILL of all", "verify")
    other.kill()
    other.wait()


def default_backend() -> None:
    declare(options__attention_backend=None)
    servewright("attention backend left to the engine", "deploy")


def too_little_memory() -> None:
    declare(options__mem_fraction_static=0.01)
    servewright("too little GPU memory", "deploy")


def settings() -> None:
    """Starts with one set of NCCL settings after the other, each measured by the performance gate.

    The first start of a set is a release, each later one a rollback to it.
    """
    numbers: dict[str, int] = {}
    failed: set[str] = set()
    for name in CONFIG["order"]:
        if left() < CONFIG["least"]["settings"]:
            break
        if name in failed:
            continue
        environment = CONFIG["service"]["nccl"]["environment"] | CONFIG["settings"][name]
        declare(nccl__environment=environment)
        if name in numbers:
            code, _service = servewright(f"settings: {name}", "rollback", NAME, str(numbers[name]))
        else:
            code, service = servewright(f"settings: {name}", "deploy")
            if code:
                failed.add(name)
            else:
                numbers[name] = service["release"]
    for name, number in numbers.items():
        if name != CONFIG["order"][0]:
            first = f"{NAME}@{numbers[CONFIG['order'][0]]}"
            servewright(f"compare: {CONFIG['order'][0]}, {name}", "compare", first, f"{NAME}@{number}")


def recordings() -> None:
    """What the tools of such a host print, for the tests of what reads it."""
    (OUT / "recordings.json").write_text(json.dumps({each: shell(each) for each in CONFIG["recordings"]}, indent=1))


def verify() -> None:
    servewright("verify", "verify")
    servewright("history", "history", NAME)


STEPS = {
    step.__name__: step
    for step in (
        deploy, wrong_flag, foreign, leftovers, killed_in_the_load, default_backend, settings, too_little_memory,
        verify, recordings,
    )
}  # fmt: skip

if __name__ == "__main__":
    for name in CONFIG["steps"]:
        if left() > CONFIG["least"].get(name, 30):
            print(f"-- {name} after {time.monotonic() - BEGIN:.0f} s, {left():.0f} s left")
            STEPS[name]()
    (OUT / "journal.txt").write_text(shell("journalctl --no-pager -o short-precise | tail -8000"))
