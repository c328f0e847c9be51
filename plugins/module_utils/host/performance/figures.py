"""The figures that describe speed, and what each is judged by."""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple


class Kind(NamedTuple):
    """One figure. `slack` is a difference in its unit that is never held against a release: nobody would notice.

    `part` of verify.performance.start_spread is assumed for it: not every figure differs as much over starts.
    """

    unit: str
    more_is_better: bool
    compared: bool  # with the baseline; all can have a floor
    words: str
    slack: float = 0.0
    part: float = 1.0


# A short prompt's first token and the gaps between tokens are a few milliseconds on a fast engine: the host's own
# scheduling is as large as what they would show. The long prompt's is compared. Its standard deviation over 11 starts
# of SGLang on two H200, in three settings, was 2.7 % within a setting, where 7 % is assumed of decode. Half of that is
# assumed, and not 0.4: with it no more than 1 % of sound releases fail before the host has shown its own.
KINDS = {
    "decode": Kind("tok/s", True, True, "single stream"),
    "ttft": Kind("s", False, False, "first token"),
    "ttft_long": Kind("s", False, True, "first token of a long prompt", 0.02, 0.5),
    "itl_p99": Kind("s", False, False, "99th percentile between two pieces"),
    "throughput": Kind("tok/s", True, True, "all streams"),
}


def summary(name, values):
    """What is kept of the repeats of a figure."""
    return {
        "unit": KINDS[name].unit,
        "median": round(statistics.median(values), 6),
        "low": round(min(values), 6),
        "high": round(max(values), 6),
        "repeats": [round(value, 6) for value in values],
    }


def quantile(values, fraction):
    """The smallest value that at least `fraction` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * fraction) - 1)]


def text(name, value):
    """A value with its unit, for a person."""
    return f"{value:.1f} tok/s" if KINDS[name].unit == "tok/s" else f"{value:.3f} s"
