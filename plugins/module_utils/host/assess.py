"""A declared release against the committed one, the files on the host and the running process."""

from __future__ import annotations

from . import difference, files, paths, releases, systemd, truth
from .results import result


def assess(release, secrets):
    """What a release would change, without touching anything.

    `secrets` are values by name. Gives {"release", "secrets": text of the environment file, "displaces": names of the
    services that would have to stop, "result": verdict `changes` or `unchanged`}.
    """
    service = release["service"]
    text = releases.secret_text(release, secrets)
    displaces = displaced(release)
    changes = stops = [
        {"field": "service " + name, "old": "running", "new": "stopped", "consequence": difference.RESTART}
        for name in displaces
    ]
    pointer = releases.committed(service)
    number = pointer["release"] if pointer else None
    if pointer is None:
        changes = difference.between(None, release) + stops
    else:
        state = systemd.show(paths.unit_name(service))
        changes = between(pointer, release, text) + stops
        if not restarts(changes):
            changes += running(release, state)
        changes += _unit(service, number, state)
    verdict = "changes" if changes else "unchanged"
    found = result(service, verdict, changes=changes, release=number, previous=number)
    return {"release": release, "secrets": text, "displaces": displaces, "result": found}


def between(pointer, release, secrets):
    """Changes from what is committed: what needs a restart against the release that the process was started from."""
    service = release["service"]
    started, committed = pointer["started"], pointer["release"]
    changed = _changed(releases.secret_on_disk(service, started), secrets)
    from_started = difference.between(releases.load(service, started), release, changed)
    from_committed = difference.between(releases.load(service, committed), release)
    return [change for change in from_started if change["consequence"] == difference.RESTART] + [
        change for change in from_committed if change["consequence"] != difference.RESTART
    ]


def restarts(changes):
    return any(change["consequence"] == difference.RESTART for change in changes)


def displaced(release):
    """Names of the other services of this host that run and hold a GPU which the release claims."""
    found = []
    for service in paths.services() if release["gpus"] else []:
        pointer = releases.committed(service) if service != release["service"] else None
        if pointer is None or not systemd.active(systemd.show(paths.unit_name(service))):
            continue
        if set(releases.load(service, pointer["release"])["gpus"]) & set(release["gpus"]):
            found.append(service)
    return found


def running(release, state):
    """How the running process differs from a release, as changes."""
    if systemd.active(state):
        differences = truth.differences(release, state)
    else:
        differences = [{"field": "process", "declared": "running", "running": state["ActiveState"]}]
    return [
        {
            "field": "running " + item["field"],
            "old": item["running"],
            "new": item["declared"],
            "consequence": difference.RESTART,
        }
        for item in differences
    ]


def _unit(service, number, state):
    """How the unit on disk and in systemd differs from the committed release, as changes."""
    found = []
    on_disk = files.read_bytes(paths.unit_file(service))
    if on_disk != releases.unit_on_disk(service, number).encode():
        found.append(("unit file", "missing" if on_disk is None else "edited", "as released"))
    if state["UnitFileState"] not in ("enabled", ""):
        found.append(("unit enabled", state["UnitFileState"], "enabled"))
    if state["NeedDaemonReload"] == "yes":
        found.append(("unit loaded", "stale", "as on disk"))
    return [{"field": f, "old": old, "new": new, "consequence": difference.RELOAD} for f, old, new in found]


def _changed(old, new):
    """Names of the secrets whose values differ between two environment files."""
    before, after = _by_name(old), _by_name(new)
    return {name for name in after if before.get(name) != after[name]}


def _by_name(text):
    """Entries of an environment file by name; a value may hold line breaks inside its quotes."""
    found, name = {}, None
    for line in text.split('"\n'):
        name, _equals, value = line.partition("=")
        found[name] = value
    return found
