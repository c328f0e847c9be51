"""Real vLLM and SGLang on CPU: deployed, verified, badly upgraded and rolled back, rolled back by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.hosts.commands import invocation, servewright

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


def service(engine: str, environments: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A tiny model on a real engine. Its weights are random, so any text is a right answer."""
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
        "verify": {
            "stable": 2,
            "load_timeout": 600,
            "stall_timeout": 300,
            "prompts": [{"prompt": "The quick brown", "expect": "(?s)."}],
            "quality": False,
            # Up to a minute each time, on a machine that is not one to measure on: one deploy does.
            "performance": {"enabled": False},
        },
        "limits": {"stop_timeout": 20},
        **changes,
    }


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_real_engine_goes_the_whole_way(real_host, inventory, environments, engine):
    def declare(**changes: Any) -> str:
        declared = service(engine, environments, **changes)
        return str(inventory([real_host], variables={"servewright_services": [declared]}))

    path = declare()
    first = servewright("deploy", "-i", path, timeout=900)
    assert (first.code, first.service()["verdict"]) == (0, "committed"), first.text
    gates = {gate["id"]: gate for gate in first.service()["gates"]}
    assert gates["engine"]["evidence"]["attention_backend"] == OPTIONS[engine]["attention_backend"]
    assert len(gates["process"]["evidence"]["processes"]) >= 3
    running = invocation(real_host, "tiny")
    again = servewright("deploy", "-i", path)
    assert (again.code, again.service()["verdict"], invocation(real_host, "tiny")) == (0, "unchanged", running), (
        again.text
    )

    # What nobody can know before it runs: it serves, and answers otherwise than expected.
    wrong = {"prompts": [{"prompt": "The quick brown", "expect": "^never this$"}]}
    verify = {**service(engine, environments)["verify"], **wrong}
    bad = servewright(
        "deploy", "-i", declare(verify=verify, environment={**ENVIRONMENT[engine], "MARK": "1"}), timeout=900
    )
    assert (bad.code, bad.service()["verdict"]) == (4, "rolled_back"), bad.text
    assert "gate answers failed" in bad.service()["message"]
    assert {gate["verdict"] for gate in bad.service()["rollback_gates"]} == {"passed"}

    measured = {**service(engine, environments)["verify"], "performance": {"seconds": 5}}
    changes = {"environment": {**ENVIRONMENT[engine], "MARK": "2"}, "verify": measured}
    second = servewright("deploy", "-i", declare(**changes), timeout=900)
    assert (second.code, second.service()["release"]) == (0, 3), second.text
    gates = {gate["id"]: gate for gate in second.service()["gates"]}
    assert gates["performance"]["evidence"]["figures"]["decode"]["median"] > 0
    back = servewright("rollback", "-i", path, "tiny", timeout=900)
    assert (back.code, back.service()["release"]) == (0, 1), back.text
    assert "MARK" not in real_host.run("systemctl show tiny -p Environment").stdout
    # What a killed engine left in shared memory is gone after the next start, and what lives is not.
    assert servewright("verify", "-i", path).code == 0
