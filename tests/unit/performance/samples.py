"""Records of speed as hosts give them, for tests."""

from __future__ import annotations

from typing import Any


def bench(release: int = 3, speed: float = 100.0, **changes: Any) -> dict[str, Any]:
    """A record of `servewright bench` at some tokens per second."""

    def figure(median: float) -> dict[str, Any]:
        return {"unit": "", "median": median, "low": median * 0.98, "high": median * 1.02, "repeats": [median] * 10}

    def level(count: int) -> dict[str, Any]:
        return {
            "concurrency": count,
            "requests": 3 * count,
            "throughput": speed * count**0.8,
            "decode": speed * count**-0.2,
            "ttft": {"median": 0.05 * count, "p99": 0.06 * count},
            "itl": {"median": 1 / speed, "p99": 2 / speed},
        }

    return {
        "schema": 1,
        "service": "kimi",
        "release": release,
        "engine": "sglang",
        "version": "0.5.23",
        "model": "/models/kimi",
        "gpus": [0, 1],
        "invocation": f"start of {release}",
        "time": "2026-11-30T01:02:03.000+00:00",
        "seconds": 101.0,
        "figures": {"decode": figure(speed), "ttft": figure(0.05), "ttft_long": figure(0.6), "itl_p99": figure(0.02)},
        "curve": [level(count) for count in (1, 2, 4, 8)],
        "left_out": [],
        "others": 0,
        "workload": {"tokens": 64},
        **changes,
    }


def baseline(release: int, *decodes: float) -> dict[str, Any]:
    """A baseline as a host keeps it."""
    return {
        "service": "kimi",
        "release": release,
        "key": {"model": "/models/kimi", "gpus": [0, 1], "workload": {"tokens": 64}},
        "starts": [{"time": "2026-11-30T00:00:00", "figures": {"decode": decode}} for decode in decodes],
    }
