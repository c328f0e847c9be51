"""Two records side by side. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from servewright.performance.records import Record

FIGURES = {
    "decode": ("single stream", True),
    "ttft": ("first token", False),
    "ttft_long": ("first token, long prompt", False),
    "itl_p99": ("between two pieces, 99th percentile", False),
    "throughput": ("all streams, in the gate", True),
}
CURVE = {
    "throughput": ("all streams", True),
    "decode": ("a stream", True),
    "ttft": ("first token", False),
}

ENOUGH_STARTS = 3
# docs/measured/sglang-2x-h200.md: 384 to 539 tok/s over five starts.
FEW_STARTS = "few starts: decode of one configuration has differed by 40 % between starts, see docs/performance.md"


@dataclass(frozen=True)
class Row:
    """One figure of both. `change` is that of the second against the first, as a fraction of the first."""

    what: str
    unit: str
    first: float
    second: float
    more_is_better: bool
    overlap: bool | None
    """The repeats of one reach into those of the other: no difference is shown. None: there were no repeats."""

    @property
    def change(self) -> float:
        return self.second / self.first - 1

    @property
    def verdict(self) -> str:
        if self.overlap is None:
            return ""
        if self.overlap:
            return "same"
        return "better" if (self.change > 0) == self.more_is_better else "worse"


def single(first: Record, second: Record) -> Iterator[Row]:
    """Rows of the figures of a single stream that both have."""
    for name, (what, more) in FIGURES.items():
        one, two = first["figures"].get(name), second["figures"].get(name)
        if one and two:
            overlap = one["low"] <= two["high"] and two["low"] <= one["high"]
            unit = "tok/s" if more else "s"
            yield Row(what, unit, one["median"], two["median"], more, overlap)


def curve(first: Record, second: Record) -> Iterator[tuple[int, list[Row]]]:
    """Rows by number of streams, for the numbers that both have. One measurement each: no spread is known."""
    others = {level["concurrency"]: level for level in second["curve"]}
    for level in first["curve"]:
        other = others.get(level["concurrency"])
        if other is not None:
            yield (
                level["concurrency"],
                [
                    Row(what, "tok/s" if more else "s", _value(level, name), _value(other, name), more, None)
                    for name, (what, more) in CURVE.items()
                ],
            )


def _value(level: Record, name: str) -> float:
    value = level[name]
    return float(value["median"] if isinstance(value, dict) else value)


def notes(first: Record, second: Record) -> list[str]:
    """Why the two may not be comparable, and what their difference does not show."""
    found = []
    for what in ("model", "gpus"):
        if first[what] != second[what]:
            found.append(f"{what} differ: {first[what]} and {second[what]}")
    lengths = [record["workload"].get("tokens") for record in (first, second)]
    if lengths[0] != lengths[1]:
        found.append(f"lengths of answers differ: {lengths[0]} and {lengths[1]} tokens")
    for record in (first, second):
        if record.get("others"):
            found.append(f"{record['service']}, release {record['release']}: others used the server meanwhile")
    if first.get("invocation") is None or first["invocation"] != second.get("invocation"):
        starts = [record.get("starts", 1) for record in (first, second)]
        found.append(f"medians of {starts[0]} and {starts[1]} starts" if min(starts) >= ENOUGH_STARTS else FEW_STARTS)
    return found
