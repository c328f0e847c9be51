"""The report of a run, for programs: one JSON document."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from servewright.driver.results import RunResult


def document(result: RunResult, code: int) -> str:
    """JSON with command, exit_code and hosts; `error`, `problems` and `services` where they are of no host."""
    fields: dict[str, Any] = asdict(result)
    content = {"command": fields.pop("command"), "exit_code": code, "hosts": fields.pop("hosts"), **fields}
    return json.dumps(content, indent=2, ensure_ascii=False)
