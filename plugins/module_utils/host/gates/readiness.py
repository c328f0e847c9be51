"""Does the server answer a completion? Its health endpoint proves little."""

from __future__ import annotations

import time

from .. import load
from .run import PASSED

TOKENS = 4  # the first is prefill's, the others have to be decoded


def gate(run):
    """A few tokens come within `verify.request_timeout`, to a prompt that is new; a busy server is waited for."""
    answer = run.complete(f"{time.time_ns()} Hello", TOKENS)
    now = load.read(run.release, run.http)
    evidence = {"text": answer.text, "running": now.running, "queued": now.queued}
    return PASSED, "a completion is answered", evidence
