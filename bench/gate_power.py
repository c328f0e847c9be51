"""How often the performance gate is wrong: false alarms and misses, by simulation with recorded noise.

No server is measured: the decisions are those of the host library, the measurements are drawn. A release that is as
fast as the one before, or slower by a few percent, must be kept; one that is slower by 10 % must not. Where starts of
one configuration differ by more than that, one start of each cannot tell, and the gate must keep it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ansible_collections.servewright.llm.plugins.module_utils.host.performance import judge, measure, noise
from ansible_collections.servewright.llm.plugins.module_utils.host.performance.figures import KINDS, summary
from bench import record
from bench.options import options
from bench.table import table
from servewright.spec.performance import Performance

SEED = 20261130
DROPS = (0.0, 0.03, 0.05, 0.10, 0.15, 0.20, 0.30, 0.40)
STARTS = (1, 3, 5, 10)
SPEED = {"decode": 440.0, "ttft_long": 2.0}  # of a release that is not slower, in tok/s and in prompts a second


@dataclass(frozen=True)
class Noise:
    """`start` draws the factor of a start, `repeat` that of a repeat within it, of the speed behind a figure."""

    name: str
    source: str
    start: Callable[[random.Random], float]
    repeat: Callable[[random.Random], float]
    figure: str = "decode"


NOISES = (
    Noise(
        "4 % a repeat",
        "repeats uniform within 4 % of the speed of their start; starts normal, 0.5 %",
        lambda rng: rng.gauss(1, 0.005),
        lambda rng: rng.uniform(0.96, 1.04),
    ),
    Noise(
        "4 % a repeat, 1 % a start",
        "repeats normal, 4 %; starts normal, 1 %: most agree within 2 %, as times to the first token did on two H200",
        lambda rng: rng.gauss(1, 0.01),
        lambda rng: rng.gauss(1, 0.04),
    ),
    Noise(
        "recorded on two H200",
        "decode of SGLang 0.5.17: starts uniform from 390 to 495 tok/s; repeats normal, 4.3 %, the standard deviation "
        "whose five values span 10 % in the mean",
        lambda rng: rng.uniform(390, 495) / 442.5,
        lambda rng: rng.gauss(1, 0.043),
    ),
    Noise(
        "recorded on two H200",
        "first token of 8000 tokens, SGLang 0.5.17: starts normal, 2.7 %, as 11 within three settings (starts.json "
        "beside docs/measured/sglang-2x-h200.md); repeats normal, 4 %, as wide as theirs",
        lambda rng: rng.gauss(1, 0.027),
        lambda rng: rng.gauss(1, 0.04),
        "ttft_long",
    ),
)


def measured(rng: random.Random, of: Noise, speed: float, settings: dict[str, Any], bound: judge.Bound | None) -> float:
    """The median of one start, with as many repeats as the host library would take."""
    pace, more_is_better = speed * of.start(rng), KINDS[of.figure].more_is_better
    values: list[float] = []
    while len(values) < settings["most_repeats"]:
        repeat = pace * max(0.1, of.repeat(rng))
        values.append(repeat if more_is_better else 1 / repeat)
        if len(values) >= settings["repeats"] and (
            noise.precise(values, measure.PRECISION)
            or (bound and noise.surely_beyond(values, bound.value, more_is_better))
        ):
            break
    return float(summary(of.figure, values)["median"])


def failed(rng: random.Random, of: Noise, drop: float, starts: int, settings: dict[str, Any]) -> bool:
    """True when a release that is slower by `drop` is failed, after so many releases with one start each."""
    earlier = [{"figures": {of.figure: measured(rng, of, SPEED[of.figure], settings, None)}} for _ in range(starts)]
    baseline = {"release": 1, "reference": earlier[-1:], "starts": earlier}
    bound = judge.bounds(settings, baseline)[of.figure]
    value = measured(rng, of, SPEED[of.figure] * (1 - drop), settings, bound)
    return not judge.judged(of.figure, value, bound)["passed"]


def main() -> int:
    """Run the simulation."""
    parser = options("gate_power", (__doc__ or "").splitlines()[0], repeats=1000)
    parser.add_argument("--figure", choices=tuple(SPEED), default="decode", help="what is judged (%(default)s)")
    arguments = parser.parse_args()
    noises = [of for of in NOISES if of.figure == arguments.figure]
    rng = random.Random(SEED)
    rows: list[dict[str, Any]] = []
    for of in noises:
        for spread in (None, 0.01):
            declared = Performance() if spread is None else Performance(start_spread=spread)
            settings = declared.model_dump()
            for starts in STARTS if spread is None else (1,):
                rates = {
                    drop: sum(failed(rng, of, drop, starts, settings) for _ in range(arguments.repeats))
                    / arguments.repeats
                    for drop in DROPS
                }
                rows.append({"noise": of.name, "start_spread": spread, "starts": starts, "failed": rates})
    print(
        table(
            ("noise", "start_spread", "earlier starts", *(f"{drop:.0%} slower" for drop in DROPS)),
            [
                (
                    row["noise"],
                    "default" if row["start_spread"] is None else f"{row['start_spread']:g}",
                    str(row["starts"]),
                    *(f"{rate:.1%}" for rate in row["failed"].values()),
                )
                for row in rows
            ],
        )
    )
    record.write(
        arguments.record,
        bench="gate_power",
        figure=arguments.figure,
        seed=SEED,
        settings=Performance().model_dump(),
        noises={of.name: of.source for of in noises},
        failed=[{**row, "failed": {f"{drop:g}": rate for drop, rate in row["failed"].items()}} for row in rows],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
