"""Real vLLM and SGLang on CPU: deployed and verified, badly upgraded and rolled back, rolled back by hand."""

from __future__ import annotations

import re
from typing import Any

from tests.engines.tiny import OPTIONS, VERIFY

# A backend that the parser takes, and instead of which the engine picks another on a CPU, with no more than a log line.
OTHER_BACKEND = {"vllm": "FLASHMLA", "sglang": "intel_amx"}
OTHER_MODEL = "/srv/other-model"


def by_id(gates: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {gate["id"]: gate for gate in gates}


def rolled_back(tiny, **changes: Any) -> str:
    """The message of a deploy that is rolled back, with the old release serving again."""
    done, found = tiny.run("deploy", **changes)
    assert (done.code, found["verdict"]) == (4, "rolled_back"), done.text
    assert {gate["verdict"] for gate in found["rollback_gates"]} == {"passed"}
    return str(found["message"])


def test_a_healthy_engine_passes_every_time(tiny):
    running = tiny.invocation()
    done, found = tiny.run("verify")
    assert done.code == 0, done.text
    gates = by_id(found["gates"])
    assert gates["engine"]["evidence"]["attention_backend"] == OPTIONS[tiny.engine]["attention_backend"]
    assert len(gates["process"]["evidence"]["processes"]) >= 3
    assert [again["message"] for again in (tiny.verify() for _ in range(9)) if again["verdict"] != "ok"] == []
    assert tiny.invocation() == running


def test_another_attention_backend_than_declared_is_rolled_back(tiny):
    backend = OTHER_BACKEND[tiny.engine]
    message = rolled_back(tiny, options=tiny.options(attention_backend=backend))
    # With vLLM the other one is CPU_MLA, or AMX_MLA where the CPU has AMX.
    assert re.search(rf"gate engine failed: attention_backend is \w+, declared is {backend}", message), message


def test_another_model_under_the_declared_name_is_rolled_back(tiny):
    """It loads and serves under the name that is asked for: only what it says tells it from the right one."""
    right = by_id(tiny.verify()["gates"])["answers"]["evidence"]["asked"][0]
    one_expert = 's/"num_experts_per_tok": 2/"num_experts_per_tok": 1/'
    tiny.host.run(f"cp -r {tiny.model()['path']} {OTHER_MODEL} && sed -i '{one_expert}' {OTHER_MODEL}/config.json")
    prompts = [{"prompt": right["prompt"], "expect": re.escape(right["answer"])}]
    message = rolled_back(tiny, model=tiny.model(path=OTHER_MODEL), verify={**VERIFY, "prompts": prompts})
    assert f"gate answers failed: {right['prompt']!r} was answered with" in message


def test_an_upgrade_is_measured_and_rolled_back_by_hand(tiny):
    before = tiny.library.status("tiny")["release"]
    measured = {**VERIFY, "request_timeout": 60, "performance": {"seconds": 5}}
    done, found = tiny.run("deploy", environment=tiny.marked("up"), verify=measured)
    gates = by_id(found["gates"])
    assert (done.code, gates["performance"]["verdict"]) == (0, "passed"), done.text
    evidence = gates["performance"]["evidence"]
    assert evidence["figures"]["decode"]["median"] > 0
    # The engine's counters tell of each answer what its usage says, and nothing else was seen in them.
    assert (evidence["undisturbed"], evidence["workload"]["disturbed"]) == (True, 0)
    done, found = tiny.run("rollback", "tiny")
    assert (done.code, found["release"]) == (0, before), done.text
    assert "MARK" not in tiny.host.run("systemctl show tiny -p Environment").stdout
    # What a killed engine left in shared memory is gone after the next start, and what lives is not.
    assert tiny.verify()["verdict"] == "ok"
