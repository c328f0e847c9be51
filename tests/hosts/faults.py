"""Faults at a chosen step of a transaction.

The host gets a copy of the host library whose journal stops right after it has written a given step: there the test
does its harm. The copy differs from the real one by that stop alone.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from typing import Any

from ansible_collections.servewright.llm.plugins.module_utils.host import library
from tests.hosts.commands import Library, rendered, service
from tests.testbed import Host

STOP = """

_real_step = Journal.step


def _stopping_step(self, step, **facts):
    entry = _real_step(self, step, **facts)
    try:
        os.rename("/var/tmp/stop-at-" + step, "/var/tmp/stopped")
    except FileNotFoundError:
        return entry
    import time
    while os.path.exists("/var/tmp/stopped"):
        time.sleep(0.02)
    return entry


Journal.step = _stopping_step
"""


def faulty_library() -> bytes:
    """The zipapp of the host library, with the stop."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(library.pack())) as source, zipfile.ZipFile(target, "w") as copy:
        for entry in source.infolist():
            text = source.read(entry)
            copy.writestr(entry, text + STOP.encode() if entry.filename.endswith("/journal.py") else text)
    return target.getvalue()


class FaultyLibrary(Library):
    """Deploys that stop at a step."""

    def __init__(self, host: Host):
        super().__init__(host)
        (host.root / "usr/local/lib/servewright/host.pyz").write_bytes(faulty_library())

    def stop_at(self, release: dict[str, Any], step: str, timeout: float = 60) -> dict[str, Any]:
        """Start a deploy and wait until its transaction has stopped right after writing a step."""
        self.host.run(f"rm -f /var/tmp/stop*; touch /var/tmp/stop-at-{step}")
        (result,) = self.begin(release)
        assert result["verdict"] == "running", result
        end = time.monotonic() + timeout
        while self.host.run("test -e /var/tmp/stopped", check=False).returncode != 0:
            assert time.monotonic() < end, f"did not come to {step!r}: {self.status()}"
            time.sleep(0.05)
        return result

    def go_on(self) -> None:
        """Let a stopped transaction go on."""
        self.host.run("rm -f /var/tmp/stop*")


FORWARD = ["preflighted", "stopping", "waiting_gpus", "starting", "loading", "verifying", "verified", "committed"]
NOT_YET = FORWARD[:-2]  # a fault here must end with the old release
SMALL: dict[str, Any] = {"gpus": [0], "parallelism": {"tensor": 1}}


def small(environment: dict[str, str] | None = None, engine: str = "sglang", **changes: Any) -> dict[str, Any]:
    """A declared service that loads within a second."""
    return service(engine, **{**SMALL, "environment": {"SIM_LOAD_SECONDS": "0.2", **(environment or {})}, **changes})


def release(environment: dict[str, str] | None = None, engine: str = "sglang", **changes: Any) -> dict[str, Any]:
    """Its release."""
    return rendered(small(environment, engine, **changes))


def settled(library: FaultyLibrary, timeout: float = 60) -> dict[str, Any]:
    """Wait until nothing is under way any more; gives the result of the latest transaction."""
    end = time.monotonic() + timeout
    while True:
        result: dict[str, Any] = library.call("follow", "kimi", None, 1)
        if result["verdict"] != "running" and not library.status()["message"]:
            return result
        assert time.monotonic() < end, f"never settled: {result}"


def check(library: FaultyLibrary, expected: dict[str, Any]) -> None:
    """One release runs, it is the expected one, the gates pass, and status says so."""
    state = library.status()
    pid = library.host.run("systemctl show kimi -p MainPID --value").stdout.strip()
    environ = dict(
        item.split("=", 1) for item in library.host.run(f"cat /proc/{pid}/environ").stdout.split("\0") if item
    )
    assert environ.get("TEST_MARK") == expected["environment"].get("TEST_MARK")
    assert library.call("verify", "kimi")["verdict"] == "ok"
    assert (state["message"], state["state"]["active"]) == ("", "active")
    assert library.call("deploy", [expected], {}, True)[0]["verdict"] == "unchanged"
    groups = library.host.run(
        "for pid in $(pgrep -f '[s]glang.launch_server'); do grep name=systemd /proc/$pid/cgroup; done"
    )
    assert {line.rpartition("/")[2] for line in groups.stdout.split()} == {"kimi.service"}


def old_of(library: FaultyLibrary) -> dict[str, Any]:
    """The release that is committed now."""
    number = library.status()["release"]
    path = library.host.root / f"etc/servewright/kimi/releases/{number}/release.json"
    found: dict[str, Any] = json.loads(path.read_text())
    del found["seal"]
    return found
