"""Measured performance beside what it is compared with, for a plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A figure. All but the texts are percent of the width of the plot; None where there is nothing to show."""

    name: str
    text: str
    median: float
    low: float
    high: float
    reference: float | None
    bound: float | None
    passed: bool


def chart(gates: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Rows from the evidence of the gate `performance`; none where it did not run or measured nothing."""
    evidence = next((gate.get("evidence") for gate in gates if gate.get("id") == "performance"), None)
    figures = evidence.get("figures") if isinstance(evidence, Mapping) else None
    if not isinstance(evidence, Mapping) or not isinstance(figures, Mapping):
        return []
    return [row for name, figure in figures.items() if (row := _row(str(name), figure, evidence)) is not None]


def _row(name: str, figure: object, evidence: Mapping[str, Any]) -> Row | None:
    if not isinstance(figure, Mapping) or not isinstance(figure.get("median"), (int, float)):
        return None
    judged = (evidence.get("judged") or {}).get(name) or {}
    median, unit = figure["median"], figure.get("unit", "")
    low, high = figure.get("low", median), figure.get("high", median)
    reference, bound = judged.get("reference"), judged.get("bound")
    scale = 100 / (1.1 * max(high, reference or 0, bound or 0) or 1)
    text = f"{median:g} {unit} ({low:g} to {high:g})"
    if reference is not None:
        of = f"release {judged['release']}" if judged.get("release") is not None else "declared"
        text += f", {of}: {reference:g}" + (f", bound: {bound:g}" if bound != reference else "")
    return Row(
        name.replace("_", " "),
        text,
        median * scale,
        low * scale,
        high * scale,
        None if reference is None else reference * scale,
        None if bound is None else bound * scale,
        judged.get("passed", True),
    )
