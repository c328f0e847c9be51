"""Gates: each checks one thing of a running release, with evidence. Together they decide keep or roll back."""

from __future__ import annotations

import time

from ..errors import HostError
from ..http import HttpError
from . import answers, engine, identity, nccl, performance, process, stable
from .run import FAILED, SKIPPED, Run

# In the order they run.
GATES = (
    ("identity", identity.gate),
    ("process", process.gate),
    ("engine", engine.gate),
    ("nccl", nccl.gate),
    ("answers", answers.gate),
    ("performance", performance.gate),
    ("stable", stable.gate),
)


def all_gates(release, number, note=lambda gate: None, returning=False):
    """Run the gates in order and give their results; after a failure the ones that would only repeat it are skipped.

    `returning` tells that the release was committed before and is gone back to.
    A result is {"id", "verdict", "message", "evidence", "seconds"}.
    """
    run = Run(release, number, returning)
    results, failed = [], False
    for name, gate in GATES:
        begin = time.monotonic()
        if failed:
            verdict, message, evidence = SKIPPED, "an earlier gate failed", {}
        else:
            try:
                verdict, message, evidence = gate(run)
            except (HttpError, HostError) as error:
                verdict, message, evidence = FAILED, str(error), {}
        failed = failed or verdict == FAILED
        result = {
            "id": name,
            "verdict": verdict,
            "message": message,
            "evidence": evidence,
            "seconds": round(time.monotonic() - begin, 3),
        }
        note(result)
        results.append(result)
    return results


def first_failed(results):
    """What failed first, as text, or None when everything passed."""
    for result in results:
        if result["verdict"] == FAILED:
            return "gate {} failed: {}".format(result["id"], result["message"])
    return None
