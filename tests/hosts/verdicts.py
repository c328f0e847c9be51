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
}
LIMITS = {"stop_timeout": 10, "gpu_wait": 30, "start_timeout": 60, "restart_delay": 1}
Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Scenario:
    """`environment` of the simulated engine and `changes` to the declared service, made for each round and engine.

    `says` must be part of the message of a rollback, `cause` its diagnosis; `again` deploys a second time, over it.
    """

    title: str
    verdict: str
    environment: Callable[[random.Random], Mapping[str, Any]] = lambda draw: {}
    changes: Callable[[str], Changes] = lambda engine: {}
    verify: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""
    cause: str | None = None
    engines: tuple[str, ...] = ENGINES
    again: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict)


def _backend(engine: str) -> Changes:
    return {"options": {"attention_backend": "flashinfer" if engine == "sglang" else "TRITON_MLA"}}


def _limit(engine: str) -> Changes:
    return {"options": {"max_running_requests": 256} if engine == "sglang" else {"max_num_seqs": 12}}


def _draft(engine: str) -> Changes:
    if engine == "sglang":
        return {"options": {"max_running_requests": 64}, "extra_args": {"speculative-algorithm": "EAGLE"}}
    return {"options": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}}


PATIENT = {"stable": 6}
NO_PROMPTS: dict[str, Any] = {"prompts": []}
SCENARIOS = {
    "good": Scenario("behaves", KEEP, lambda draw: {"SIM_LOAD_SECONDS": draw.uniform(0, 3)}),
    "post_hangs": Scenario(
        "every GET is 200, no POST is ever answered", ROLL_BACK, lambda draw: {"SIM_POST_HANGS": 1},
        says="loading has stalled",
    ),
    "garbage": Scenario(
        "garbage, five times as fast", ROLL_BACK, lambda draw: {"SIM_GARBAGE": 1}, says="gate answers failed",
    ),
    "gibberish": Scenario(
        "fluent gibberish at full speed", ROLL_BACK, lambda draw: {"SIM_GIBBERISH": 1}, says="gate answers failed"
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
        verify={"burst": {"requests": 200, "concurrency": 16}}, says="gate burst failed",
    ),
    "busy": Scenario(
        "503 to everything for a while, then fine", KEEP,
        lambda draw: {"SIM_BUSY_AFTER": draw.uniform(0, 3), "SIM_BUSY_503": draw.uniform(2, 8)}, verify={"stable": 2},
    ),
    "silent_load": Scenario(
        "a silent load, longer than the stall limit", KEEP,
        lambda draw: {"SIM_LOAD_SECONDS": draw.uniform(9, 12), "SIM_SILENT_LOAD": 1}, verify={"stall_timeout": 6},
    ),
    "stalls": Scenario(
        "a load that stops", ROLL_BACK, lambda draw: {"SIM_STALL_AT": draw.randrange(0, 100, 10)},
        says="loading has stalled",
    ),
    "old_names": Scenario(
        "only the old names of the info endpoints", KEEP, lambda draw: {"SIM_INFO_ENDPOINT": "old"},
        changes=_backend, engines=("sglang",),
    ),
    "new_names": Scenario(
        "only the new names of the info endpoints", KEEP, lambda draw: {"SIM_INFO_ENDPOINT": "new"},
        changes=_backend, engines=("sglang",),
    ),
    "no_names": Scenario(
        "no info endpoint under a known name", KEEP, lambda draw: {"SIM_INFO_ENDPOINT": "none"},
        changes=_backend, engines=("sglang",),
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
        lambda draw: {"SIM_HEALTH_GENERATE": "always", "SIM_POST_HANGS": 1}, says="loading has stalled",
        engines=("sglang",),
    ),
    "key": Scenario(
        "401 without the key", KEEP, changes=lambda engine: {"secrets": {"VLLM_API_KEY": {"env": "UNUSED"}}},
        engines=("vllm",), secrets={"VLLM_API_KEY": "s3cret"},
    ),
    "child": Scenario(
        "a child that leaves the tree and keeps port and segments; the next release is deployed over it", KEEP,
        lambda draw: {"SIM_ORPHAN": "both"}, again=True,
    ),
    "backend": Scenario(
        "another attention backend than declared", ROLL_BACK,
        lambda draw: {"SIM_ATTENTION_BACKEND": "triton"}, changes=_backend, says="attention_backend is",
    ),
    "limit": Scenario(
        "a lower limit of running requests than declared, silently", ROLL_BACK,
        lambda draw: {"SIM_MAX_RUNNING": draw.choice([4, 6, 8]), "SIM_SPEED": 0.05}, changes=_limit,
        verify={"quality": False, "request_timeout": 30}, says="declared",
    ),
    "truncated": Scenario(
        "answers break off half way", ROLL_BACK, lambda draw: {"SIM_TRUNCATE_STREAM": 1}, says="gate answers failed"
    ),
    "short_stream": Scenario(
        "streams break off half way, with [DONE]", ROLL_BACK, lambda draw: {"SIM_SHORT_STREAM": 1},
        says="gate answers failed: the answer broke off",
    ),
    "slow_first": Scenario(
        "the first answer is slow, the rest fast", KEEP,
        lambda draw: {"SIM_COLD_SECONDS": draw.uniform(2, 7)}, verify={"stall_timeout": 20},
    ),
    "any_length": Scenario(
        "a prompt longer than the context is served", ROLL_BACK, lambda draw: {"SIM_ANY_LENGTH": 1},
        says="gate bad_request failed",
    ),
    "draft": Scenario(
        "speculation as declared", KEEP, lambda draw: {"SIM_ACCEPT_LENGTH": draw.uniform(2.2, 3.5)}, changes=_draft,
        verify={"min_accept_length": 2.0},
    ),
    "bad_draft": Scenario(
        "drafted tokens are hardly accepted", ROLL_BACK, lambda draw: {"SIM_ACCEPT_LENGTH": draw.uniform(1.05, 1.8)},
        changes=_draft, verify={"min_accept_length": 2.0}, says="gate speculation failed",
    ),
    "exits": Scenario(
        "ends with exit code 1 while loading", ROLL_BACK,
        lambda draw: {"SIM_LOAD_SECONDS": 5, "SIM_EXIT_AFTER": draw.uniform(0, 4)},
        says="the engine ended while loading",
    ),
}  # fmt: skip
LATER = (
    "a new version at 60 % of the speed",
    "a new version at 97 % of the speed, with 4 % of noise",
)  # judged by the performance gate, in tests of its own


def declared(engine: str, scenario: Scenario, draw: random.Random, worker: int, **more: Any) -> dict[str, Any]:
    """The service of a scenario; each worker has a GPU, a port and a name of its own."""
    changes = dict(scenario.changes(engine))
    environment = {"SIM_LOAD_SECONDS": draw.uniform(0, 1), **scenario.environment(draw), **more}
    return service(
        engine,
        **{
            "name": f"w{worker}",
            "gpus": [worker],
            "parallelism": {"tensor": 1},
            "listen": {"port": 31000 + worker},
            "options": {},
            "environment": {name: f"{value:.3f}" if isinstance(value, float) else str(value)
                            for name, value in environment.items()},
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
    draw = random.Random(seed)
    secrets = {name: dict(scenario.secrets)} if scenario.secrets else {}
    results = [library.deploy(rendered(declared(engine, scenario, draw, worker)), timeout=180, secrets=secrets)]
    if scenario.again and results[0]["verdict"] == KEEP:
        second = rendered(declared(engine, scenario, draw, worker, TEST_MARK="second"))
        results.append(library.deploy(second, timeout=180))
    return _judge(scenario, results[-1])


def _judge(scenario: Scenario, result: Mapping[str, Any]) -> str:
    said = f"{result['verdict']}: {result['message']}"
    if result["verdict"] != scenario.verdict:
        return said
    if scenario.says and scenario.says not in result["message"]:
        return f"the wrong reason: {said}"
    if scenario.cause and (result.get("cause") or {}).get("id") != scenario.cause:
        return f"the wrong cause: {result.get('cause')}: {said}; {result.get('log')}"
    return ""


HEAD = """\
# Verdicts

Made by `make verdicts`. Each engine of this table is a simulated one on a real systemd host, deployed with timings
drawn anew for each round; times are those of production, shortened some hundredfold. A cell is: right verdicts with the
right reason / rounds.

"""


def markdown(rows: Mapping[tuple[str, str], tuple[int, int]]) -> str:
    """The page, from (right, rounds) by scenario and engine."""
    lines = ["| the engine | deserves | SGLang | vLLM |", "|---|---|---|---|"]
    for name, scenario in SCENARIOS.items():
        verdict = "to be kept" if scenario.verdict == KEEP else "a rollback"
        cells = [_cell(rows.get((name, engine)), engine in scenario.engines) for engine in ENGINES]
        lines.append(f"| {scenario.title} | {verdict} | {cells[0]} | {cells[1]} |")
    rounds = sum(count for _, count in rows.values())
    wrong = rounds - sum(right for right, _ in rows.values())
    return HEAD + "\n".join(lines) + f"\n\n{rounds} deploys, {wrong} wrong verdicts.\n"


def _cell(counts: tuple[int, int] | None, applies: bool) -> str:
    if not applies:
        return "does not apply"
    return "not run" if counts is None else f"{counts[0]} / {counts[1]}"
