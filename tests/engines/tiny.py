"""A service with a tiny model on a real engine, which the tests of one engine share."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hosts.commands import Library, Outcome, invocation, request, servewright
from tests.testbed import Host

MODEL = {"vllm": "tiny-deepseek", "sglang": "tiny-qwen3moe"}
OPTIONS: dict[str, dict[str, Any]] = {
    "vllm": {"enforce_eager": True, "attention_backend": "CPU_MLA"},
    "sglang": {
        "device": "cpu",
        "attention_backend": "torch_native",
        "mem_fraction_static": 0.3,
        "max_total_tokens": 8192,
    },
}
# One thread each: the engines would bind or spin on cores that the tests share.
ENVIRONMENT = {
    "vllm": {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
    "sglang": {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1"},
}
VERIFY: dict[str, Any] = {
    "stable": 1,
    "load_timeout": 600,
    "stall_timeout": 300,
    # Twice this long is what a frozen engine costs a test.
    "request_timeout": 10,
    "attempts": 2,
    "prompts": [{"prompt": "The quick brown", "expect": "(?s)."}],
    "quality": False,
    # Up to a minute each time, on a machine that is not one to measure on: one deploy does.
    "performance": {"enabled": False},
}
# What computes, by the title that the engine gives its process; the HTTP server is another one.
CORE = {"vllm": "VLLM::EngineCore", "sglang": "sglang::scheduler"}


def service(engine: str, environments: dict[str, Path], **changes: Any) -> dict[str, Any]:
    """The declaration of `tiny`. Its model's weights are random, so any text is a right answer."""
    return {
        "name": "tiny",
        "engine": engine,
        "version": environments[engine].name.split("-")[1],
        "venv": str(environments[engine]),
        "model": {
            "path": str(environments["models"] / MODEL[engine]),
            "served_name": "tiny",
            "context_length": 2048,
        },
        "listen": {"port": 30000},
        "options": OPTIONS[engine],
        "environment": ENVIRONMENT[engine],
        # NCCL is not used on a CPU, but its variables must reach the processes all the same.
        "nccl": {"profile": "pcie-ll-ring"},
        "verify": VERIFY,
        "limits": {"stop_timeout": 20, "restart_delay": 1},
        **changes,
    }


class Tiny:
    """The service `tiny` on one host."""

    def __init__(self, engine: str, host: Host, environments: dict[str, Path], inventory: Callable[..., Path]):
        self.engine = engine
        self.host = host
        self.environments = environments
        self.inventory = inventory
        self.library = Library(host)

    def model(self, **changes: Any) -> dict[str, Any]:
        """The declared model, with changes."""
        return {**service(self.engine, self.environments)["model"], **changes}

    def options(self, **changes: Any) -> dict[str, Any]:
        """The declared options, with changes."""
        return {**OPTIONS[self.engine], **changes}

    def marked(self, mark: str) -> dict[str, str]:
        """An environment that only a restart takes up."""
        return {**ENVIRONMENT[self.engine], "MARK": mark}

    def declare(self, **changes: Any) -> str:
        """Path of an inventory with this service; the one of before is gone."""
        declared = service(self.engine, self.environments, **changes)
        return str(self.inventory([self.host], variables={"servewright_services": [declared]}))

    def run(self, *arguments: str, **changes: Any) -> tuple[Outcome, dict[str, Any]]:
        """A command of the command line on this service, declared with changes; and what it found of it."""
        command, *others = arguments
        done = servewright(command, "-i", self.declare(**changes), *others, timeout=900)
        return done, done.service(self.host.name)

    def verify(self) -> dict[str, Any]:
        """What the gates find, without Ansible."""
        found: dict[str, Any] = self.library.call("verify", "tiny")
        return found

    def settled(self) -> dict[str, Any]:
        """What the gates find as soon as the engine, which was just started, answers."""
        end = time.monotonic() + VERIFY["load_timeout"]
        while True:
            found = self.verify()
            if not found["message"].startswith(("gate ready failed", "gate stable failed", "the unit")):
                return found
            assert time.monotonic() < end, found

    def invocation(self) -> str:
        return invocation(self.host, "tiny")

    def started(self) -> tuple[str, int]:
        """The running invocation, and how often systemd has restarted the unit by itself."""
        return self.invocation(), self.library.status("tiny")["state"]["restarts"]

    def core(self) -> str:
        """Process id of the scheduler or engine core."""
        (pid,) = self.host.run(["pgrep", "--full", f"^{re.escape(CORE[self.engine])}"]).stdout.split()
        return pid

    def get(self, path: str) -> int:
        """Status of a GET on the host."""
        return int(self.host.run(request(path)).stdout)
