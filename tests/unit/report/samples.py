"""A run that found about everything that can be found, for the tests of what is written about it."""

from __future__ import annotations

from typing import Any

from servewright.driver.results import HostResult, RunResult

HOSTILE = '<script>alert(1)</script>"\' &amp; ]]> | `code` ``` @all *b* _i_ \x1b[31mred\x1b[0m \x00\x0b\ufffe'
"""A line that an engine could log: markup, Markdown, an escape sequence, and characters that XML cannot hold."""


def at(seconds: int) -> str:
    """A time of a journal."""
    return f"2026-11-29T16:{seconds // 60:02d}:{seconds % 60:02d}.000+00:00"


def steps(*pairs: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"step": name, "time": at(seconds), "release": 8} for name, seconds in pairs]


GATES: list[dict[str, Any]] = [
    {"id": "identity", "verdict": "passed", "message": "serves 'kimi'", "seconds": 0.25, "evidence": {"model": "k"}},
    {
        "id": "engine",
        "verdict": "failed",
        "message": f"attention_backend is triton {HOSTILE}",
        "seconds": 0.5,
        "evidence": {"raw": HOSTILE},
        "repair": "declare it",
    },
    {
        "id": "performance",
        "verdict": "passed",
        "message": "single stream 94.1 tok/s, 4 % worse than 98.0 of release 7",
        "seconds": 14.2,
        "evidence": {
            "figures": {
                "decode": {"unit": "tok/s", "median": 94.1, "low": 90.0, "high": 97.5, "repeats": [94.1, 90.0, 97.5]},
                "ttft": {"unit": "s", "median": 0.042, "low": 0.04, "high": 0.08, "repeats": []},
            },
            "judged": {"decode": {"reference": 98.0, "bound": 86.2, "release": 7, "passed": True}},
        },
    },
    {"id": "stable", "verdict": "skipped", "message": "an earlier gate failed", "seconds": 0, "evidence": {}},
]
CHECKS: list[dict[str, Any]] = [
    {"id": "model", "severity": "fatal", "passed": True, "message": "", "evidence": {}, "repair": ""},
    {"id": "drop_ins", "severity": "warning", "passed": False, "message": "x.conf", "evidence": {}, "repair": "rm"},
]
CHANGES: list[dict[str, Any]] = [
    {
        "field": "flag --attention-backend",
        "old": "flashinfer",
        "new": "triton",
        "consequence": "restart",
        "source": {"file": "group_vars/llm.yml", "line": 34, "origin": ""},
    },
    {"field": "secret KEY", "old": "(secret)", "new": "(secret, changed)", "consequence": "restart"},
    {"field": "unit Unit.Description", "old": "a", "new": HOSTILE, "consequence": "reload"},
    {"field": "service other", "old": "running", "new": "stopped", "consequence": "stop"},
    {"field": "verify.stable", "old": 10, "new": 20, "consequence": "none"},
]
ROLLED_BACK: dict[str, Any] = {
    "service": "kimi",
    "verdict": "rolled_back",
    "release": 7,
    "previous": 7,
    "seconds": 782.0,
    "message": f"gate engine failed: {HOSTILE}",
    "steps": steps(
        ("staged", 0), ("preflighted", 0), ("stopping", 2), ("waiting_gpus", 12), ("starting", 14), ("loading", 15),
        ("verifying", 375), ("verified", 390), ("rolling_back", 390), ("stopping", 391), ("waiting_gpus", 400),
        ("starting", 402), ("loading", 403), ("verifying", 770), ("verified", 781), ("restored", 782),
    ),
    "gates": GATES,
    "rollback_gates": [{**gate, "verdict": "passed"} for gate in GATES],
    "checks": CHECKS,
    "changes": CHANGES,
    "log": ["loading shard 12", HOSTILE, "::error::obey me"],
    "cause": {"id": "x", "what": f"no memory {HOSTILE}", "line": "OOM", "retry": False, "change": "less", "source": ""},
    "next_steps": [f"look {HOSTILE}"],
}  # fmt: skip
PROBLEM: dict[str, Any] = {
    "file": "/inventory/llm.yml",
    "line": 31,
    "path": "servewright_services[0].gpu",
    "message": f"unknown key {HOSTILE}",
    "value": [0],
    "hint": "did you mean 'gpus'?",
}


def everything() -> RunResult:
    """Rolled back, committed, unreachable, invalid and refused, each on a host or service of its own."""
    committed = {"service": "embed", "verdict": "committed", "release": 3, "seconds": 42.0, "gates": GATES[:1]}
    missing = {**CHECKS[0], "passed": False, "message": "no model"}
    refused = {"service": "kimi", "verdict": "refused", "message": "no model", "checks": [missing]}
    return RunResult(
        "deploy",
        {
            "gpu1": HostResult(services=[ROLLED_BACK, committed]),
            "gpu2": HostResult(unreachable=True, error=f"no SSH connection: {HOSTILE}"),
            "gpu3": HostResult(problems=[PROBLEM]),
            "gpu4": HostResult(services=[refused]),
        },
    )


def planned() -> RunResult:
    """A plan of one restart on gpu1, and nothing on gpu2."""
    service = {
        "service": "kimi",
        "verdict": "changes",
        "changes": CHANGES,
        "checks": CHECKS,
        "downtime": {"seconds": 372.0, "of": 3, "same_model": True},
    }
    return RunResult(
        "plan",
        {
            "gpu1": HostResult(services=[service, {"service": "embed", "verdict": "unchanged", "changes": []}]),
            "gpu2": HostResult(services=[{"service": "kimi", "verdict": "unchanged", "changes": []}]),
        },
    )
