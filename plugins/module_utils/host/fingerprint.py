"""Whether a host is still as it was when a plan was made, told without saying what it holds."""

from __future__ import annotations

import hashlib
import hmac
import json

from . import files, journal, paths, releases, systemd

_STATE = ("LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload", "DropInPaths")


def of(item, timer):
    """The fingerprint of one assessed service (`assess.assess`), hexadecimal: equal as long as a deploy does the same.

    It covers the planned changes, those of the host (`timer`), the values of secrets, the committed release,
    transactions since, and the unit on disk and in systemd. A restart that changed none of it does not count. The
    values of secrets go in, and a plan is kept where many can read it, so it is keyed by the machine's id, which
    machine-id(5) wants to be kept secret.
    """
    service = item["release"]["service"]
    last = journal.latest(service)
    state = systemd.show(paths.unit_name(service))
    facts = [
        item["result"]["changes"],
        timer,
        item["secrets"],
        releases.committed(service),
        last.number if last else None,
        (files.read_bytes(paths.unit_file(service)) or b"").decode("utf-8", "replace"),
        {name: state.get(name) for name in _STATE},
    ]
    key = files.read_bytes("/etc/machine-id") or b""
    return hmac.new(key, json.dumps(facts, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def mismatch(item, plan, timer):
    """Why an assessed service is not what was planned, or None. `plan` maps service to {"declared", "fingerprint"}."""
    service = item["release"]["service"]
    planned = plan.get(service)
    if planned is None:
        return f"{service} is not in the plan"
    if planned["declared"] != item["release"]["digest"]:
        return "the declaration has changed since the plan was made; plan again"
    if planned["fingerprint"] != of(item, timer):
        return "the host has changed since the plan was made; plan again"
    return None
