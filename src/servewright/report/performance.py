"""Measured performance beside what it is compared with, for a plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A metric. `value`, `baseline` and `floor` are percent of the width of the plot; None where there is none."""

    name: str
    text: str
    value: float
    low: float
    high: float
    baseline: float | None
    floor: float | None
    bad: bool


def chart(gates: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Rows from the evidence of the gate `performance`; none where it did not run or measured nothing."""
    return []
