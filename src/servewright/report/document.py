"""The report of a run, for programs: one JSON document."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from servewright.driver.results import HostResult, RunResult


def document(result: RunResult, code: int) -> str:
    """JSON with command, exit_code and hosts; `error`, `problems` and `services` where they are of no host."""
    fields: dict[str, Any] = asdict(result)
    content = {"command": fields.pop("command"), "exit_code": code, "hosts": fields.pop("hosts"), **fields}
    return json.dumps(content, indent=2, ensure_ascii=False)


def from_document(text: str) -> RunResult:
    """The result that a document was made from. Raises ValueError for anything else."""
    content = json.loads(text)
    try:
        hosts = {str(name): HostResult(**found) for name, found in content.pop("hosts").items()}
        known = {field.name for field in fields(RunResult)}
        return RunResult(hosts=hosts, **{name: value for name, value in content.items() if name in known})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"this is not the JSON document of a run of servewright ({error})") from None
