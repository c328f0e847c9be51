"""The report for programs."""

from __future__ import annotations

import json

from servewright.driver.results import HostResult, RunResult
from servewright.report.document import document


def test_it_is_one_document_with_all_that_is_known() -> None:
    service = {"service": "kimi", "verdict": "committed", "log": ["ü \x1b[0m"]}
    found = json.loads(document(RunResult("deploy", {"gpu1": HostResult(services=[service], changed=True)}), 4))

    assert (found["command"], found["exit_code"], found["error"]) == ("deploy", 4, "")
    assert found["hosts"]["gpu1"]["services"] == [service]
    assert found["hosts"]["gpu1"]["changed"] is True
