"""Driving servewright against test hosts: by its command line, and by calling the host library directly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.servewright.llm.plugins.module_utils.host import library
from servewright.release.render import render
from servewright.spec import validate
from tests.testbed import Host

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PATH = f"{BIN}:{os.environ['PATH']}"


def service(engine: str = "sglang", **changes: Any) -> dict[str, Any]:
    """A declared service of the simulated engine on eight simulated GPUs, quick to load."""
    options = {"sglang": {"attention_backend": "flashinfer"}, "vllm": {}}
    return {
        "name": "kimi",
        "engine": engine,
        "version": {"sglang": "0.5.23", "vllm": "0.32.0"}[engine],
        "model": {"path": "/opt/simulator/model", "served_name": "kimi-k2.5", "context_length": 131072},
        "gpus": list(range(8)),
        "parallelism": {"tensor": 8},
        "listen": {"port": 30000},
        "options": options[engine],
        "nccl": {"profile": "pcie-ll-ring"},
        "verify": {
            "stable": 0.5,
            "load_timeout": 60,
            "stall_timeout": 15,
            "request_timeout": 10,
            "burst": {"requests": 24, "concurrency": 8},
            # Two seconds a deploy, and a machine with three of these tests at once is not one to measure on.
            "performance": {"enabled": False},
        },
        "limits": {"stop_timeout": 10, "gpu_wait": 20, "start_timeout": 60, "restart_delay": 1},
        **changes,
    }


@dataclass(frozen=True)
class Outcome:
    """What a command of the command line gave: exit code, its JSON document, and all it printed."""

    code: int
    document: dict[str, Any]
    text: str

    def service(self, host: str = "gpu1", number: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = self.document["hosts"][host]["services"][number]
        return found


def servewright(*arguments: str, env: Mapping[str, str] | None = None, timeout: float = 240) -> Outcome:
    """Run the command line with --json."""
    done = subprocess.run(
        [BIN / "servewright", *arguments, "--json"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        env={**os.environ, **(env or {})},
        cwd="/",
        check=False,
    )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        raise AssertionError(
            f"no JSON on standard output (exit code {done.returncode}):\n{done.stdout}{done.stderr}"
        ) from None
    return Outcome(done.returncode, document, done.stdout + done.stderr)


def rendered(declared: Mapping[str, Any], nccl: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The release of a declared service."""
    (valid,) = validate.services([dict(declared)])
    return render(valid, dict(nccl or {}), ROOT / "templates")


_REQUEST = """
import sys, urllib.request
url, body, timeout = sys.argv[1:]
request = urllib.request.Request(url, body.encode() or None, {"Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=float(timeout)) as answer:
    answer.read()
    print(answer.status)
"""


def request(path: str, body: Mapping[str, Any] | None = None, port: int = 30000, timeout: float = 10) -> list[str]:
    """A command that asks an engine from its own host (a POST when there is a body) and prints the answer's status."""
    url = f"http://127.0.0.1:{port}{path}"
    return ["/usr/bin/python3", "-c", _REQUEST, url, "" if body is None else json.dumps(body), str(timeout)]


_CALL = """
import json, sys
job = json.load(sys.stdin)
sys.path.insert(0, job["library"])
from servewright_host import api
print(json.dumps(getattr(api, job["function"])(*job["arguments"])))
"""


class Library:
    """The host library on one host, called without Ansible: for tests of the transaction itself.

    It is put where a deploy puts it, or elsewhere beside one that is there: byte code differs between interpreters.
    """

    def __init__(self, host: Host, path: str = "/usr/local/lib/servewright/host.pyz"):
        self.host = host
        self.path = path
        target = host.root / self.path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(library.pack())

    def call(self, function: str, *arguments: Any) -> Any:
        job = json.dumps({"library": self.path, "function": function, "arguments": arguments})
        return json.loads(self.host.run(["/usr/bin/python3", "-c", _CALL], input=job).stdout)

    def begin(self, *releases: Mapping[str, Any], secrets: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Start a deploy; gives the results as far as the start of the transaction."""
        found: list[dict[str, Any]] = self.call("deploy", releases, secrets or {}, False, "tester", "a test", 0)
        return found

    def deploy(
        self, release: Mapping[str, Any], timeout: float = 120, secrets: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Deploy one release to its verdict."""
        return self.settle(self.begin(release, secrets=secrets)[0], timeout)

    def settle(self, result: dict[str, Any], timeout: float = 120) -> dict[str, Any]:
        """Follow a result to its verdict, which ends a call at once."""
        end = time.monotonic() + timeout
        while result["verdict"] == "running":
            assert time.monotonic() < end, f"no verdict within {timeout} s: {result}"
            result = self.call("follow", result["service"], result["transaction"], 20)
        return result

    def status(self, name: str = "kimi") -> dict[str, Any]:
        found: dict[str, Any] = self.call("status", name)
        return found

    def wait_for_step(self, name: str, step: str, after: int = 0, timeout: float = 60) -> None:
        """Wait until a transaction of a service, later than number `after`, has written a step."""
        end = time.monotonic() + timeout
        folder = self.host.root / f"var/lib/servewright/{name}/transactions"
        while not any(
            f'"step": "{step}"' in path.read_text() for path in folder.glob("*.jsonl") if int(path.stem) > after
        ):
            assert time.monotonic() < end, f"no step {step!r} within {timeout} s"
            time.sleep(0.02)


def invocation(host: Host, unit: str = "kimi") -> str:
    """Id of the running invocation of a unit: another one means that it was restarted."""
    return host.run(["systemctl", "show", unit, "-p", "InvocationID", "--value"]).stdout.strip()


def canary_hits(canary: str, folders: Iterable[Path]) -> list[str]:
    """Files below folders that hold a text."""
    hits = []
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and canary.encode() in path.read_bytes():
                hits.append(str(path))
    return hits
