"""Findings as JSON and as SARIF 2.1.0, for programs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from servewright import __version__

from .finding import Finding
from .rules import book

_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_json(findings: Iterable[Finding]) -> dict[str, Any]:
    """The findings and how many there are of each severity."""
    rows = [finding.as_dict() for finding in findings]
    counts = {severity: sum(row["severity"] == severity for row in rows) for severity in _LEVELS}
    return {"version": 1, "counts": counts, "findings": rows}


def as_sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """One SARIF run. Findings whose place is unknown have no location."""
    found = list(findings)
    identifiers = sorted({finding.id for finding in found})
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "servewright nccl lint",
                        "version": __version__,
                        "rules": [
                            {"id": identifier, "shortDescription": {"text": book().title(identifier)}}
                            for identifier in identifiers
                        ],
                    }
                },
                "results": [_result(finding, identifiers.index(finding.id)) for finding in found],
            }
        ],
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    setting = f"{finding.variable}={finding.value}: " if finding.variable else ""
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{setting}{finding.message} To do: {finding.suggestion}."},
        "properties": {"source": finding.source, "noEffect": finding.no_effect},
    }
    if finding.location:
        path = PurePosixPath(finding.location.file)
        uri = path.as_uri() if path.is_absolute() else quote(finding.location.file)
        place: dict[str, Any] = {"artifactLocation": {"uri": uri}}
        if finding.location.line:
            place["region"] = {"startLine": finding.location.line}
        result["locations"] = [{"physicalLocation": place}]
    return result
