"""Faults at a chosen step of a transaction.

The host gets a copy of the host library whose journal stops right after it has written a given step: there the test
does its harm. The copy differs from the real one by that stop alone.
"""

from __future__ import annotations

import io
import time
import zipfile
from typing import Any

from ansible_collections.servewright.llm.plugins.module_utils.host import library
from tests.hosts.commands import Library
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
