"""Did the engine resolve what was declared?"""

from __future__ import annotations

import re

from .. import systemd
from .run import FAILED, PASSED


def gate(run):
    """What the engine resolved is what was declared, from its own report or log."""
    expected = run.release["expected"]
    if not expected:
        return PASSED, "nothing declared that the engine reports", {}
    if run.release["endpoints"]["info"]:
        info = run.http.first(run.release["endpoints"]["info"])
        found = {name: info.get(name) for name in expected}
        wrong = {name: value for name, value in found.items() if value != expected[name]}
    else:
        found, wrong = _from_log(run, expected)
    if wrong:
        text = ", ".join(
            "{} is {}, declared is {}".format(name, value if value is not None else "not reported", expected[name])
            for name, value in sorted(wrong.items())
        )
        return FAILED, text, found
    return PASSED, ", ".join("{} {}".format(*item) for item in sorted(found.items())), found


def _from_log(run, expected):
    found, wrong = {}, {}
    for name, value in expected.items():
        pattern = run.release["log_lines"][name]
        lines = systemd.log_text(run.state["InvocationID"], pattern)
        hits = [match.group(1).upper() for match in (re.search(pattern, line) for line in lines) if match]
        found[name] = hits[-1] if hits else None
        if value.upper() not in hits:
            wrong[name] = found[name]
    return found, wrong
