"""What drift has to say: one finding is one difference, with what mends it."""

from __future__ import annotations

from .. import masks

# How a finding is mended: put back at once; accepted when the gates pass on the running service; by a restart of the
# committed release through the transaction and its gates; or only by a person.
UNDO, GATES, RESTART, PERSON = "undo", "gates", "restart", "person"


_MOST = 1000  # pieces of evidence; a report holds them several times


def finding(name, message, evidence, consequence, repair, mended_by):
    """One finding as plain data. `evidence` is a list of lines; `message` says the same in one, for a table.

    Evidence quotes text of others, so what looks like a secret in it is not shown: findings go to terminals, logs and
    metrics. The message is our own.
    """
    more = [f"and {len(evidence) - _MOST} more"] if len(evidence) > _MOST else []
    return {
        "id": name,
        "message": message,
        "evidence": [masks.shown(line) for line in evidence[:_MOST]] + more,
        "consequence": consequence,
        "repair": repair,
        "mended_by": mended_by,
        "needs_restart": mended_by == RESTART,
    }


def compared(old, new):
    """Lines for what differs between two mappings: what was recorded and what is."""
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return [f"{name}: {old.get(name)} -> {new.get(name)}" for name in names]
