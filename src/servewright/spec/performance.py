"""What is declared about speed: how it is measured, and what is too slow."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from servewright.spec.base import Seconds, Strict, Text

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, lt=1)]


class Floors(Strict):
    """Worst accepted figures. One that is given replaces the comparison with the baseline."""

    decode: Positive | None = Field(None, description="Tokens per second of a single stream, at least.")
    ttft: Seconds | None = Field(None, description="Seconds to the first token of a short prompt, at most.")
    ttft_long: Seconds | None = Field(None, description="Seconds to the first token of the long prompt, at most.")
    itl_p99: Positive | None = Field(
        None, description="Seconds between two pieces of a single stream, 99th percentile, at most."
    )
    throughput: Positive | None = Field(
        None, description="Tokens per second of all streams at the highest declared concurrency, at least."
    )


class Performance(Strict):
    """How fast the release has to be. It is measured on the host, on an otherwise idle server, after a warm-up."""

    enabled: bool = Field(True, description="Measure at all.")
    compare: bool = Field(
        True, description="Compare with the baseline. False accepts a slower release, which becomes the new baseline."
    )
    # Half way between the 3 % that must be kept and the 10 % that must be caught: docs/performance.md has the rates.
    tolerance: Fraction = Field(
        0.065, description="Drop below the baseline that is allowed whatever the spread between starts is."
    )
    # Decode of one configuration was between 390 and 495 tok/s over starts of SGLang on two H200: a uniform
    # distribution of that range has this standard deviation.
    start_spread: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.07,
        description="Standard deviation between starts of one and the same release, as a fraction, that is assumed "
        "until three starts on the host have shown it.",
    )
    floors: Floors = Field(default_factory=Floors, description="Worst accepted figures.")
    tokens: Annotated[int, Field(ge=8)] = Field(64, description="Tokens of each measured answer.")
    long_prompt: Count = Field(2000, description="Tokens of the long prompt, about; less when the context is shorter.")
    concurrency: list[Count] = Field(
        default_factory=list, description="Numbers of streams at which the gate measures throughput."
    )
    repeats: Annotated[int, Field(ge=3)] = Field(5, description="Fewest repeats.")
    most_repeats: Annotated[int, Field(ge=3)] = Field(
        20, description="Most repeats; they end sooner once the medians are known to 0.7 %."
    )
    seconds: Seconds = Field(60, description="Time for all repeats. Three are taken in any case.")
    prompt: Text | None = Field(
        None,
        min_length=1,
        description="Prompt to measure with, for an engine whose speed depends on it (speculation); without it "
        "random words, which no prefix cache holds.",
    )
