"""Real vLLM and SGLang are asked for their command line before anything is stopped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.test_real import service
from tests.hosts.commands import invocation, servewright

JSON = {"vllm": "compilation-config", "sglang": "json-model-override-args"}
ABBREVIATED = {"vllm": "max-log-le", "sglang": "stream-interv"}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_real_parser_refuses_while_the_old_release_serves(real_host, inventory, environments, engine):
    def declare(**changes: Any) -> str:
        declared = service(engine, environments, **changes)
        return str(inventory([real_host], variables={"servewright_services": [declared]}))

    def checked(done) -> dict[str, Any]:
        (found,) = [check for check in done.service()["checks"] if check["id"] == "command_line"]
        return found

    first = servewright("deploy", "-i", declare(), timeout=900)
    assert first.code == 0, first.text
    assert checked(first)["passed"], first.text
    running = invocation(real_host, "tiny")
    refused = [
        ({"extra_args": {"no-such-flag": "1"}}, "has no flag --no-such-flag"),
        ({"extra_args": {ABBREVIATED[engine]: "1"}}, f"--{ABBREVIATED[engine]} is an abbreviation of"),
        ({"extra_args": {JSON[engine]: "{mode: 3}"}}, f"--{JSON[engine]}"),
        ({"extra_args": {"log-level": "info", "log_level": "debug"}}, "--log-level is given twice"),
    ]
    for changes, message in refused:
        done = servewright("deploy", "-i", declare(**changes), timeout=900)
        assert (done.code, message in done.text) == (3, True), done.text
        assert invocation(real_host, "tiny") == running
    # A context that only the engine's own reading of the model refuses: ours stops at its config.json.
    long = {"model": {**service(engine, environments)["model"], "context_length": 8192}}
    done = servewright("preflight", "-i", declare(**long), timeout=900)
    assert "refuses this model with these arguments" in checked(done)["message"]
    again = servewright("preflight", "-i", declare(), timeout=900)
    assert (again.code, checked(again)["evidence"]["cached"]) == (0, True), again.text  # since the first deploy
    assert servewright("verify", "-i", declare()).code == 0
