"""Did every rank's NCCL see the declared settings, and act on them?"""

from __future__ import annotations

from .. import releases, retention
from ..errors import DamagedError, HostError
from ..nccl import compare, library, proof
from .run import FAILED, PASSED, SKIPPED

_SHOWN = 3  # findings in the message; the evidence has all


def gate(run):
    """NCCL's log of this start agrees with the declaration; the proof is kept, and compared with the one before."""
    if not proof.wanted(run.release):
        off = (run.release.get("proof") or {}).get("mode") == "off" and run.release["gpus"][1:]
        return PASSED, "not asked for: nccl.proof is off" if off else "one GPU or none: nothing to prove", {}
    seen = proof.collect(run.release, run.state)
    if seen is None:
        return _unlogged(run)
    failures, warnings = proof.judge(run.release, seen)
    found = proof.document(run.release, run.number, run.state, seen)
    wrong, notes = library.differing(found["libraries"], [pid for pid, _log in seen["ranks"]])
    failures, warnings = failures + wrong, warnings + notes
    against, changes = _before(run, found)
    evidence = {
        "failures": failures,
        "warnings": warnings,
        "ranks": len(found["ranks"]),
        "version": found["ranks"][0]["version"] if found["ranks"] else None,
        "channels": sorted({rank["channels"] or 0 for rank in found["ranks"]}),
        "transports": compare.transports(found),
        "choices": sorted({"/".join(filter(None, (c["algorithm"], c["protocol"]))) for c in found["choices"]}),
        "libraries": found["libraries"],
        "undeclared": found["undeclared"],
        "compared_with": against,
        "changes": changes,
    }
    if failures:
        return FAILED, _joined(failures), evidence
    if not found["ranks"]:
        return PASSED, "the ranks made no communicator: nothing to prove", evidence
    found.update(warnings=warnings, compared_with=against, changes=changes)
    evidence["stored"] = _store(run, found)
    return PASSED, _message(found, evidence), evidence


def _unlogged(run):
    """The process was started by systemd alone, after a crash or a boot, or before there was a proof."""
    kept = _stored(run, run.number)
    if kept is None:
        return SKIPPED, "this start wrote no NCCL log: the next deploy that restarts the service proves it", {}
    return (
        PASSED,
        f"not this start, which wrote no NCCL log, but an earlier one of the release was proved at {kept['time']}",
        {"stored": proof.path_of(run.release["service"], run.number)},
    )


def _before(run, found):
    """The proof to compare with: of the committed release, or an earlier one; (its number, differences)."""
    service = run.release["service"]
    pointer = releases.committed(service)
    current = pointer["release"] if pointer else None
    for number in (current, retention.before(service, run.number)):
        kept = _stored(run, number) if number is not None else None
        if kept is not None and kept["invocation"] == found["invocation"]:
            return kept["compared_with"], kept["changes"]  # the same start, verified again
        if kept is not None:
            return number, compare.between(kept, found)
    return None, []


def _stored(run, number):
    try:
        return proof.stored(run.release["service"], number)
    except DamagedError:
        return None


def _store(run, found):
    """Keep the proof; a disk that is full must not fail a release that is right."""
    service = run.release["service"]
    try:
        proof.store(service, run.number, found)
    except HostError as error:
        return str(error)
    return proof.path_of(service, run.number)


def _message(found, evidence):
    rank = found["ranks"][0]
    seen = len(found["declared"])
    parts = [
        "{} ranks: NCCL {}, {} channels".format(
            len(found["ranks"]), rank["version"], ", ".join(map(str, evidence["channels"]))
        ),
        *([evidence["transports"]] if evidence["transports"] else []),
        *([", ".join(evidence["choices"])] if evidence["choices"] else []),
        "{} declared setting{} in force".format(seen, "" if seen == 1 else "s") if seen else "no setting declared",
    ]
    text = "; ".join(parts)
    if evidence["warnings"]:
        text += "; warning: " + _joined(evidence["warnings"])
    if evidence["changes"]:
        changes = ["{} {} -> {}".format(c["field"], _short(c["old"]), _short(c["new"])) for c in evidence["changes"]]
        text += "; against release {}: {}".format(evidence["compared_with"], _joined(changes))
    return text


def _short(value):
    """A digest as its first characters."""
    return value[:12] if isinstance(value, str) and len(value) == 64 and "," not in value else value


def _joined(texts):
    more = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
