"""The probe's result as typed values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .probe import SCHEMA


class RecordError(ValueError):
    """The text is not a result of the probe, or of another version of it."""


@dataclass(frozen=True)
class Timing:
    """Microseconds per call of one collective at one size, in one case of one round. p10 and p90 are over repeats.

    calls: in one graph. Times per call of graphs of different lengths do not compare.
    """

    case: str
    round: int
    collective: str
    bytes: int
    median: float
    p10: float
    p90: float
    correct: bool
    calls: int


@dataclass(frozen=True)
class Diagnosis:
    name: str
    detail: str
    to_do: str
    stops: bool
    case: str | None = None


@dataclass(frozen=True)
class Record:
    """One run of the probe. `raw` is the whole result, as it is kept."""

    raw: Mapping[str, Any]
    timings: tuple[Timing, ...]
    diagnoses: tuple[Diagnosis, ...]

    @property
    def rehearsal(self) -> bool:
        """True: timed on CPUs, and says nothing about GPUs."""
        return bool(self.raw.get("rehearsal", False))

    @property
    def ranks(self) -> int:
        return int(self.raw["job"]["ranks"])

    def heading(self) -> str:
        """What was measured with what, in one line."""
        if self.rehearsal:
            return "REHEARSAL on CPUs with gloo: these times say nothing about GPUs or NCCL"
        library, host = self.raw["library"], self.raw["host"]
        models = sorted(set(library.get("visible", [])))
        return (
            f"{self.ranks} of {len(library.get('visible', []))}x {', '.join(models) or 'no GPU'}, "
            f"driver {host.get('driver')}, NCCL {library.get('nccl')}, torch {library.get('torch')}, "
            f"{self.raw['job']['dtype']}, {self.raw['date'][:10]}"
            + ("" if self.raw["complete"] else ", CUT SHORT")
        )


def read(text: str) -> Record:
    """Raises RecordError."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise RecordError(f"not JSON: {error}") from None
    return typed(raw)


def typed(raw: Any) -> Record:
    """A result that was read already. Raises RecordError."""
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        found = raw.get("schema") if isinstance(raw, dict) else type(raw).__name__
        raise RecordError(f"expected a result with schema {SCHEMA}, found {found!r}")
    try:
        diagnoses = [_diagnosis(row, None) for row in raw["diagnoses"]]
        timings = []
        for case in raw["cases"]:
            if case["diagnosis"]:
                diagnoses.append(_diagnosis(case["diagnosis"], case["name"]))
            timings += [_timing(row, case) for row in case["results"]]
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"a field is missing or of the wrong type: {error!r}") from None
    return Record(raw, tuple(timings), tuple(diagnoses))


def _diagnosis(row: Mapping[str, Any], case: str | None) -> Diagnosis:
    return Diagnosis(str(row["name"]), str(row["detail"]), str(row["to_do"]), bool(row["stops"]), case)


def _timing(row: Mapping[str, Any], case: Mapping[str, Any]) -> Timing:
    return Timing(
        case=str(case["name"]),
        round=int(case["round"]),
        collective=str(row["collective"]),
        bytes=int(row["bytes"]),
        median=float(row["median_us"]),
        p10=float(row["p10_us"]),
        p90=float(row["p90_us"]),
        correct=bool(row["correct"]),
        calls=int(row["calls"]),
    )
