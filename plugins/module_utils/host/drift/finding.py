"""What drift has to say: one finding is one difference, with what mends it."""

from __future__ import annotations

import re

# How a finding is mended: put back at once; accepted when the gates pass on the running service; by a restart of the
# committed release through the transaction and its gates; or only by a person.
UNDO, GATES, RESTART, PERSON = "undo", "gates", "restart", "person"

_SECRET = re.compile(r"((?:TOKEN|API[_-]?KEY|SECRET|PASSW(?:OR)?D|CREDENTIALS?)\w*[=\s]+)\S+", re.IGNORECASE)


def finding(name, message, evidence, consequence, repair, mended_by):
    """One finding as plain data. `evidence` is a list of lines; `message` says the same in one, for a table."""
    return {
        "id": name,
        "message": shown(message),
        "evidence": [shown(line) for line in evidence],
        "consequence": consequence,
        "repair": repair,
        "mended_by": mended_by,
        "needs_restart": mended_by == RESTART,
    }


def shown(text):
    """Text without the values of what looks like a secret: findings go to terminals, logs and metrics."""
    return _SECRET.sub(r"\1(not shown)", text)


def compared(old, new):
    """Lines for what differs between two mappings: what was recorded and what is."""
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return [f"{name}: {old.get(name)} -> {new.get(name)}" for name in names]
