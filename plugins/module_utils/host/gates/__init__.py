"""Gates: each checks one thing of a running release, with evidence. Together they decide keep or roll back."""

from __future__ import annotations

import time

from ..errors import HostError
from ..http import HttpError
from ..load import WorkingError
from . import (
    answers,
    bad_request,
    burst,
    engine,
    identity,
    nccl,
    performance,
    process,
    readiness,
    speculation,
    stable,
)
from .run import BUSY, FAILED, SKIPPED, Run

# In the order they run: what a later one would only repeat comes first.
GATES = (
    ("stable", stable.gate),
    ("ready", readiness.gate),
    ("identity", identity.gate),
    ("process", process.gate),
    ("engine", engine.gate),
    ("nccl", nccl.gate),
    ("answers", answers.gate),
    ("burst", burst.gate),
    ("bad_request", bad_request.gate),
    ("performance", performance.gate),
    ("speculation", speculation.gate),
)

LIGHT = ("ready",)  # what costs so little that it can be asked of a serving release again and again


def all_gates(release, number, note=lambda gate: None, returning=False, light=False):
    """Run the gates in order and give their results; after a failure the ones that would only repeat it are skipped.

    `returning` tells that the release was committed before and is gone back to. `light` are the gates of LIGHT alone:
    each asks once, and a server that works for others gets the verdict `busy`.
    A result is {"id", "verdict", "message", "evidence", "seconds"}.
    """
    run = Run(release, number, returning, light)
    results, failed = [], False
    for name, gate in GATES:
        if light and name not in LIGHT:
            continue
        begin = time.monotonic()
        if failed:
            verdict, message, evidence = SKIPPED, "an earlier gate failed", {}
        else:
            verdict, message, evidence = _answer(gate, run)
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


def _answer(gate, run):
    try:
        verdict, message, evidence = gate(run)
    except WorkingError as error:
        verdict, message, evidence = BUSY, str(error), {"moved": error.moved}
    except (HttpError, HostError) as error:
        verdict, message, evidence = FAILED, str(error), {}
    ended = run.restarted()
    if ended and message != ended:  # whatever the gate saw, this is why, or what it missed
        return FAILED, f"{ended} ({message})" if verdict == FAILED else ended, evidence
    if verdict == FAILED and not ended:
        message = "; ".join([message, *run.remarks()])
    return verdict, message, evidence


def first_failed(results):
    """What failed first, as text, or None when everything passed."""
    for result in results:
        if result["verdict"] == FAILED:
            return "gate {} failed: {}".format(result["id"], result["message"])
    return None
