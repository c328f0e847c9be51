"""Drift of a real engine: nothing is found while it serves, and what its processes really run is told."""

from __future__ import annotations

from tests.engines.tiny import ENVIRONMENT, service
from tests.hosts.commands import invocation, servewright

UNIT = "/etc/systemd/system/tiny.service"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnuma.so.1.0.0"


def test_what_a_real_process_runs_is_compared(real_host, inventory, environments):
    host = real_host
    declared = service("vllm", environments, environment={**ENVIRONMENT["vllm"], "MARK": "1"})
    path = str(inventory([host], variables={"servewright_services": [declared]}))
    first = servewright("deploy", "-i", path, timeout=900)
    assert first.code == 0, first.text

    def drift(*arguments, code=0):
        done = servewright("drift", "-i", path, "--detailed-exitcode", *arguments, timeout=900)
        assert done.code == code, done.text
        return {one["id"]: "\n".join(one["evidence"]) for one in done.service()["findings"]}

    assert drift() == {}

    # Somebody started it from another unit, and put the unit back; then a library of the system was upgraded.
    change = "s/MARK=1/MARK=2/; s/--served-model-name tiny/& --seed 7/"
    host.run(f"cp -a {UNIT} /root/unit; sed -i '{change}' {UNIT}; systemctl daemon-reload; systemctl restart tiny")
    host.run(f"cp -a /root/unit {UNIT} && systemctl daemon-reload")
    found = drift(code=2)
    assert set(found) == {"process.argv", "process.environment"}
    assert "only running: --seed 7" in found["process.argv"]
    assert "environment.MARK: declared 1, running 2" in found["process.environment"]

    before = invocation(host, "tiny")
    assert drift("--repair", code=2).keys() == found.keys()
    assert invocation(host, "tiny") == before
    assert drift("--repair", "--allow-restart") == {}
    assert invocation(host, "tiny") != before

    host.run(f"cp {LIBRARY} {LIBRARY}.new && mv {LIBRARY}.new {LIBRARY}")
    found = drift(code=2)
    assert set(found) == {"process.libraries"}
    assert LIBRARY in found["process.libraries"]
