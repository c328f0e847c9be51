"""Whether a host is still as it was when a plan was made, told without saying what it holds."""

from __future__ import annotations

import hashlib
import hmac
import json

from . import drop_ins, files, journal, paths, releases, surroundings, systemd

_STATE = ("LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload", "DropInPaths")


def of(item, timer, now):
    """The fingerprint of one assessed service (`assess.assess`), hexadecimal: equal as long as a deploy does the same.

    It covers the planned changes, those of the host (`timer`), the values of secrets, the committed release,
    transactions since, the unit on disk and in systemd with its drop-ins, read or not, and the files of the declared
    engine and model. A restart that changed none of it does not count. The values of secrets go in, and a plan is kept
    where many can read it, so it is keyed by the machine's id, which machine-id(5) wants to be kept secret.
    `now` are the facts of this host (`surroundings.Now`), which services share.
    """
    service = item["release"]["service"]
    last = journal.latest(service)
    unit = paths.unit_name(service)
    state = systemd.show(unit)
    foreign = [*drop_ins.of_unit(unit), *(path for path in drop_ins.of_many() if drop_ins.applies(path, unit))]
    facts = [
        item["result"]["changes"],
        timer,
        item["secrets"],
        releases.committed(service),
        last.number if last else None,
        (files.read_bytes(paths.unit_file(service)) or b"").decode("utf-8", "replace"),
        {name: state.get(name) for name in _STATE},
        {path: surroundings.host.digest(path) for path in foreign},
        surroundings.of_files(item["release"], now),
    ]
    key = files.read_bytes("/etc/machine-id") or b""
    return hmac.new(key, json.dumps(facts, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def mismatch(item, plan, timer, now):
    """Why an assessed service is not what was planned, or None. `plan` maps service to {"declared", "fingerprint"}."""
    service = item["release"]["service"]
    planned = plan.get(service)
    if planned is None:
        return f"{service} is not in the plan"
    if planned["declared"] != item["release"]["digest"]:
        return "the declaration has changed since the plan was made; plan again"
    if planned["fingerprint"] != of(item, timer, now):
        return "the host has changed since the plan was made; plan again"
    return None
