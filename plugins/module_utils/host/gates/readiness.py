"""Does the server answer a completion? Its health endpoint proves little."""

from __future__ import annotations

from .. import load
from .run import PASSED


def gate(run):
    """One token comes within `verify.request_timeout`; a busy server is waited for."""
    answer = run.complete("Hello", 1)
    now = load.read(run.release, run.http)
    evidence = {"text": answer.text, "running": now.running, "queued": now.queued}
    return PASSED, "a completion is answered", evidence
