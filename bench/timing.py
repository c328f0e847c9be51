"""Timing whole processes, in turn, so that a machine which grows slow or fast is so for all of them."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Argv = list[str | Path]
Result = TypeVar("Result")


class BenchError(Exception):
    """A bench cannot be run, or a contestant did not do what it is timed for."""


@dataclass(frozen=True)
class Timed:
    """One run of a command: seconds on the clock, seconds of processor time of it and its children, its output."""

    wall: float
    cpu: float
    output: str


@dataclass(frozen=True)
class Spread:
    """The median of some figures, the lowest and the highest."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def timed(argv: Argv, cwd: Path) -> Timed:
    """Run a command to its end. Raises BenchError when it fails."""
    with tempfile.TemporaryFile() as stream:  # a pipe would stay open for as long as SSH keeps its connection
        begin = time.perf_counter()
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        _pid, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        stream.seek(0)
        output = stream.read().decode(errors="replace")
    if process.returncode != 0:
        raise BenchError(f"{' '.join(map(str, argv))} ended with {process.returncode}:\n{output}")
    return Timed(wall, usage.ru_utime + usage.ru_stime, output)


def in_turn(contestants: Mapping[str, Callable[[], Result]], repeats: int) -> dict[str, list[Result]]:
    """Results of `repeats` rounds, by contestant; a round before them, which fills caches, does not count."""
    results: dict[str, list[Result]] = {name: [] for name in contestants}
    for number in range(repeats + 1):
        for name, run in contestants.items():
            result = run()
            if number:
                results[name].append(result)
    return results


def spread(figures: Sequence[float]) -> Spread:
    """Median, lowest and highest."""
    return Spread(statistics.median(figures), min(figures), max(figures))


def ratio(figures: Sequence[float], base: Sequence[float]) -> Spread:
    """Of the ratios round by round."""
    return spread([one / other for one, other in zip(figures, base, strict=True)])
