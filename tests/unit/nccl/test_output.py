from __future__ import annotations

import json
from typing import Any

import jsonschema

from servewright.nccl import linter, output
from servewright.nccl.facts import Facts
from servewright.nccl.sources import Location

# What the SARIF 2.1.0 schema requires of the objects used here (OASIS, section 3 of the standard).
SARIF: dict[str, Any] = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "$schema": {"type": "string", "format": "uri"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {"type": "object", "required": ["id"]},
                                    }
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message", "ruleId", "level"],
                            "properties": {
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"type": "object", "required": ["text"]},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "locations": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "required": ["physicalLocation"],
                                        "properties": {
                                            "physicalLocation": {
                                                "type": "object",
                                                "required": ["artifactLocation"],
                                                "properties": {
                                                    "artifactLocation": {"required": ["uri"]},
                                                    "region": {
                                                        "properties": {"startLine": {"type": "integer", "minimum": 1}}
                                                    },
                                                },
                                            }
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
ENVIRONMENT = {"NCCL_P2P_LEVEL": "sys", "NCCL_PROTO": "LL", "NCCL_DEBUG_FILE": "/x"}


def _findings() -> list[linter.Finding]:
    places = {
        "NCCL_P2P_LEVEL": Location("/etc/nccl.conf", 3),
        "NCCL_PROTO": Location("vllm.service", 12),
        "NCCL_DEBUG_FILE": Location("process environment"),
    }
    facts = Facts(tensor_parallel=2, compute_capability=(12, 0), flags=())
    return linter.lint(ENVIRONMENT, facts, places)


def test_sarif_has_the_shape_of_the_standard() -> None:
    document = json.loads(json.dumps(output.as_sarif(_findings())))
    jsonschema.Draft202012Validator(SARIF).validate(document)
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert {r["level"] for r in run["results"]} == {"error", "warning", "note"}


def test_sarif_points_at_file_and_line() -> None:
    results = {r["ruleId"]: r for r in output.as_sarif(_findings())["runs"][0]["results"]}
    place = results["NCCL008"]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "file:///etc/nccl.conf"}, "region": {"startLine": 3}}
    place = results["NCCL114"]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "vllm.service"}
    assert "locations" not in results["NCCL113"]
    assert "write NCCL_P2P_LEVEL=SYS" in results["NCCL008"]["message"]["text"]


def test_json_counts_and_lists() -> None:
    document = output.as_json(_findings())
    assert document["counts"] == {"error": 2, "warning": 1, "info": 1}
    assert json.loads(json.dumps(document)) == document
    assert {row["id"] for row in document["findings"]} == {"NCCL008", "NCCL113", "NCCL114", "NCCL118"}


def test_nothing_found() -> None:
    jsonschema.Draft202012Validator(SARIF).validate(output.as_sarif([]))
    assert output.as_json([])["counts"] == {"error": 0, "warning": 0, "info": 0}
