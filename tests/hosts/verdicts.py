"""Engines that behave and misbehave, the verdict that each deserves, and the table in docs/verdicts.md.

Times are those of production shortened by a factor of some hundred: what takes ten minutes there takes seconds here,
and the declared timeouts are shortened alike. Timings are drawn anew for each round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.hosts.commands import Library, rendered, service

ENGINES = ("sglang", "vllm")
KEEP, ROLL_BACK = "committed", "rolled_back"
VERIFY: dict[str, Any] = {
    "stable": 0.5,
    "load_timeout": 60,
    "stall_timeout": 8,
    # The slowest answer of a good engine here takes a tenth of a second; the machine may be thirty times slower.
    "request_timeout": 4,
    "attempts": 2,
    "busy_timeout": 40,
    "burst": {"requests": 24, "concurrency": 8},
    "performance": {"enabled": False},  # but where it is what is judged: it takes seconds
}
LIMITS = {"stop_timeout": 10, "gpu_wait": 30, "start_timeout": 60, "restart_delay": 1}
# As in production but for the times, so that what a busy machine adds to a token is small beside it.
MEASURED = {"performance": {"tokens": 12, "long_prompt": 600, "seconds": 5}}
PACE = (0.08, 0.12)  # of 250 tokens a second
Changes = Mapping[str, Any]
Environment = Callable[[random.Random], Mapping[str, Any]]


@dataclass(frozen=True)
class Scenario:
    """`environment` of the simulated engine and `changes` to the declared service, made for each round and engine.

    `says` must be part of the message of a rollback, `cause` its diagnosis. `before` is the environment of a release
    that is deployed first, and is to be kept.
    """

    title: str
    verdict: str
    environment: Environment = lambda draw: {}
    changes: Callable[[str], Changes] = lambda engine: {}
    verify: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""
    cause: str | None = None
    engines: tuple[str, ...] = ENGINES
    before: Environment | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)


def _backend(engine: str) -> Changes:
    return {"options": {"attention_backend": "flashinfer" if engine == "sglang" else "TRITON_MLA"}}


def _limit(engine: str) -> Changes:
    return {"options": {"max_running_requests": 256} if engine == "sglang" else {"max_num_seqs": 64}}


def _old_names(engine: str) -> Changes:
    """With a limit that vLLM reports nowhere: it is looked for in metrics, whose names are the old ones."""
    return _backend(engine) if engine == "sglang" else {"options": {**_backend(engine)["options"], "max_num_seqs": 12}}


def _pace(fraction: float, **more: Any) -> Environment:
    """A fraction of one and the same pace, which is drawn for each round."""
    return lambda draw: {"SIM_SPEED": draw.uniform(*PACE) * fraction, **more}


def _draft(engine: str) -> Changes:
    if engine == "sglang":
        return {"options": {"max_running_requests": 64}, "extra_args": {"speculative-algorithm": "EAGLE"}}
    return {"options": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}}


PATIENT = {"stable": 6}
NO_PROMPTS: dict[str, Any] = {"prompts": []}
SCENARIOS = {
    "good": Scenario("behaves", KEEP, lambda draw: {"SIM_LOAD_SECONDS": draw.uniform(0, 3)}, verify=MEASURED),
    "post_hangs": Scenario(
        "every GET is 200, no POST is ever answered", ROLL_BACK, lambda draw: {"SIM_POST_HANGS": 1},
        says="(POST /v1/completions: no answer within",
    ),
    "garbage": Scenario(
        "garbage, five times as fast", ROLL_BACK, lambda draw: {"SIM_GARBAGE": 1}, says="gate answers failed",
    ),
    "gibberish": Scenario(
        "fluent gibberish at full speed", ROLL_BACK, lambda draw: {"SIM_GIBBERISH": 1}, says="gate answers failed"
    ),
    "batch": Scenario(
        "fluent gibberish when it has several requests at once", ROLL_BACK, lambda draw: {"SIM_GIBBERISH_BATCH": 1},
        says="gate burst failed",
    ),
    "repeated_token": Scenario(
        "one token over and over, as NaN logits give, and no known answer declared", ROLL_BACK,
        lambda draw: {"SIM_REPEAT_WORD": 1}, verify=NO_PROMPTS, says="times in a row",
    ),
    "empty": Scenario("empty answers", ROLL_BACK, lambda draw: {"SIM_EMPTY_ANSWER": 1}, says="gate answers failed"),
    "any_model": Scenario("any model name accepted, the right model served", KEEP, lambda draw: {"SIM_ANY_MODEL": 1}),
    "wrong_model": Scenario(
        "any model name accepted, another model served", ROLL_BACK,
        lambda draw: {"SIM_ANY_MODEL": 1, "SIM_WRONG_NAME": 1}, says="gate identity failed",
    ),
    "dies": Scenario(
        "dies of a shape error some time after the start", ROLL_BACK,
        lambda draw: {"SIM_DIE_AFTER": draw.uniform(0.2, 3), "SIM_LIFE_SCALE": 0.1}, verify=PATIENT, cause="shapes",
    ),
    "hangs_later": Scenario(
        "answers 100 requests, then hangs", ROLL_BACK, lambda draw: {"SIM_HANG_AFTER_REQUESTS": draw.randint(60, 120)},
        verify={"burst": {}}, says="gate burst failed",
    ),
    "busy": Scenario(
        "503 to everything for a while, then fine", KEEP,
        # From the first gate to the last: they take about four seconds.
        lambda draw: {"SIM_BUSY_AFTER": draw.uniform(0, 5), "SIM_BUSY_503": draw.uniform(2, 6)}, verify=MEASURED,
    ),
    "silent_load": Scenario(
        "a silent load, longer than the stall limit", KEEP,
        lambda draw: {"SIM_LOAD_SECONDS": draw.uniform(7, 9), "SIM_SILENT_LOAD": 1}, verify={"stall_timeout": 5},
    ),
    "stalls": Scenario(
        "a load that stops", ROLL_BACK, lambda draw: {"SIM_STALL_AT": draw.randrange(0, 100, 10)},
        verify={"stall_timeout": 4}, says="loading has stalled",
    ),
    "old_names": Scenario(
        "only the old names of info endpoints (SGLang) and metrics (vLLM)", KEEP,
        lambda draw: {"SIM_INFO_ENDPOINT": "old"}, changes=_old_names,
    ),
    "new_names": Scenario(
        "only the new names", KEEP, lambda draw: {"SIM_INFO_ENDPOINT": "new"}, changes=_old_names,
    ),
    "no_names": Scenario(
        "no info endpoint (vLLM: and no metrics) under a known name", KEEP,
        lambda draw: {"SIM_INFO_ENDPOINT": "none"}, changes=_backend,
    ),
    "odd_info": Scenario(
        "server info without ranks, or with a null one", KEEP,
        lambda draw: {"SIM_INTERNAL_STATES": draw.choice(["empty", "null", "missing"])},
        changes=_backend, engines=("sglang",),
    ),
    "no_health_generate": Scenario(
        "no health_generate", KEEP, lambda draw: {"SIM_HEALTH_GENERATE": "missing"}, engines=("sglang",)
    ),
    "lying_health": Scenario(
        "health_generate is 200, and no completion is ever answered", ROLL_BACK,
        lambda draw: {"SIM_HEALTH_GENERATE": "always", "SIM_POST_HANGS": 1},
        says="(POST /v1/completions: no answer within", engines=("sglang",),
    ),
    "key": Scenario(
        "401 without the key, which is declared", KEEP,
        changes=lambda engine: {"secrets": {"VLLM_API_KEY": {"env": "UNUSED"}}}, engines=("vllm",),
        secrets={"VLLM_API_KEY": "s3cret"},
    ),
    "no_key": Scenario(
        "401 without a key that is not declared", ROLL_BACK, lambda draw: {"SIM_GUARD": "another"},
        says="the server is up and refuses a completion: POST /v1/completions: status 401",
    ),
    "child": Scenario(
        "a child that leaves the tree and keeps port and segments; the next release is deployed over it", KEEP,
        lambda draw: {"SIM_ORPHAN": "both"}, before=lambda draw: {"SIM_ORPHAN": "both"},
    ),
    "slower": Scenario(
        "a new version at 60 % of the speed", ROLL_BACK, _pace(0.6), before=_pace(1.0), verify=MEASURED,
        says="gate performance failed: single stream",
    ),
    "as_fast": Scenario(
        "a new version at 97 % of the speed, both with 4 % of noise", KEEP, _pace(0.97, SIM_NOISE=0.04),
        before=_pace(1.0, SIM_NOISE=0.04), verify=MEASURED,
    ),
    "backend": Scenario(
        "another attention backend than declared", ROLL_BACK,
        lambda draw: {"SIM_ATTENTION_BACKEND": "triton"}, changes=_backend, says="attention_backend is",
    ),
    "limit": Scenario(
        "a lower limit of running requests than declared, silently", ROLL_BACK,
        lambda draw: {"SIM_MAX_RUNNING": 48, "SIM_SPEED": draw.uniform(0.04, 0.06)}, changes=_limit,
        verify={"quality": False, "request_timeout": 30}, says="declared",
    ),
    "truncated": Scenario(
        "answers break off half way", ROLL_BACK, lambda draw: {"SIM_TRUNCATE_STREAM": 1}, says="gate ready failed"
    ),
    "short_stream": Scenario(
        "streams break off half way, with [DONE]", ROLL_BACK, lambda draw: {"SIM_SHORT_STREAM": 1},
        says="gate answers failed: the answer broke off",
    ),
    "slow_first": Scenario(
        "the first answer is slow, the rest fast", KEEP,
        lambda draw: {"SIM_COLD_SECONDS": draw.uniform(1, 5)}, verify={"stall_timeout": 20},
    ),
    "any_length": Scenario(
        "a prompt longer than the context is served", ROLL_BACK, lambda draw: {"SIM_ANY_LENGTH": 1},
        says="gate bad_request failed",
    ),
    "draft": Scenario(
        "speculation as declared, little of random words", KEEP,
        lambda draw: {"SIM_ACCEPT_LENGTH": draw.uniform(2.2, 3.5), "SIM_ACCEPT_OTHERS": draw.uniform(1.05, 1.8)},
        changes=_draft, verify={"min_accept_length": 2.0},
    ),
    "bad_draft": Scenario(
        "drafted tokens are hardly accepted", ROLL_BACK,
        lambda draw: {"SIM_ACCEPT_LENGTH": draw.uniform(1.05, 1.8), "SIM_ACCEPT_OTHERS": draw.uniform(2.2, 3.5)},
        changes=_draft, verify={"min_accept_length": 2.0}, says="gate speculation failed",
    ),
    "exits": Scenario(
        "ends with exit code 1 while loading", ROLL_BACK,
        lambda draw: {"SIM_LOAD_SECONDS": 5, "SIM_EXIT_AFTER": draw.uniform(0, 4)},
        says="the engine ended while loading",
    ),
}  # fmt: skip


def declared(engine: str, scenario: Scenario, environment: Environment, seed: int, worker: int) -> dict[str, Any]:
    """A service of a scenario; each worker has a GPU, a port and a name of its own."""
    changes = dict(scenario.changes(engine))
    values = {"SIM_LOAD_SECONDS": random.Random(seed).uniform(0, 1), **environment(random.Random(seed))}
    return service(
        engine,
        **{
            "name": f"w{worker}",
            "gpus": [worker],
            "parallelism": {"tensor": 1},
            "listen": {"port": 31000 + worker},
            "options": {},
            "environment": {name: f"{value:.3f}" if isinstance(value, float) else str(value)
                            for name, value in values.items()},
            "verify": {**VERIFY, **scenario.verify},
            "limits": LIMITS,
            **changes,
        },
    )  # fmt: skip


def play(library: Library, engine: str, scenario: Scenario, seed: int, worker: int) -> str:
    """One round of a scenario on a host, from a clean state; gives what was wrong, or ''."""
    name = f"w{worker}"
    library.host.run(
        f"systemctl disable --now {name} 2>/dev/null; systemctl reset-failed 2>/dev/null; "
        f"rm -rf /etc/servewright/{name} /var/lib/servewright/{name} /etc/systemd/system/{name}.service",
        check=False,
    )
    secrets = {name: dict(scenario.secrets)} if scenario.secrets else {}
    if scenario.before:
        first = declared(engine, scenario, scenario.before, seed, worker)
        first["environment"]["TEST_MARK"] = "first"
        result = library.deploy(rendered(first), timeout=180)
        if result["verdict"] != KEEP:
            return f"the release before: {result['verdict']}: {result['message']}"
    release = rendered(declared(engine, scenario, scenario.environment, seed, worker))
    return _judge(scenario, library.deploy(release, timeout=180, secrets=secrets))


def _judge(scenario: Scenario, result: Mapping[str, Any]) -> str:
    said = f"{result['verdict']}: {result['message']}"
    if result["verdict"] != scenario.verdict:
        return said
    if scenario.says and scenario.says not in result["message"]:
        return f"the wrong reason: {said}"
    if scenario.cause and (result.get("cause") or {}).get("id") != scenario.cause:
        return f"the wrong cause: {result.get('cause')}: {said}; {result.get('log')}"
    return ""
