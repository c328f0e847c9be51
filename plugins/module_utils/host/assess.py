"""A declared release against the committed one, the files on the host and the running process."""

from __future__ import annotations

import os

from . import difference, drop_ins, files, masks, paths, releases, systemd, timers, truth
from .results import result
from .watch import timer


def assess(release, secrets):
    """What a release would change, without touching anything.

    `secrets` are values by name. Gives {"release", "secrets": text of the environment file, "displaces": names of the
    services that would have to stop, "left": what differs and a deploy leaves, as changes, "result": verdict `changes`
    or `unchanged`}.
    """
    service = release["service"]
    text = releases.secret_text(release, secrets)
    displaces = displaced(release)
    changes = stops = [
        {"field": "service " + name, "old": "running", "new": "stopped", "consequence": difference.STOP}
        for name in displaces
    ]
    pointer = releases.committed(service)
    number = pointer["release"] if pointer else None
    if pointer is None:
        changes = difference.between(None, release) + stops
    else:
        state = systemd.show(paths.unit_name(service))
        changes = between(pointer, release, text) + stops
        # What the release that the process was started from does not explain, somebody did by hand.
        by_hand = {change["field"] for change in running(releases.load(service, pointer["started"]), state)}
        changes += [change for change in running(release, state) if change["field"] in by_hand]
        changes += _unit(service, number, state) + _watch(releases.load(service, number))
    verdict = "changes" if changes else "unchanged"
    found = result(service, verdict, changes=changes, release=number, previous=number)
    left = _drop_ins(service) if pointer else []
    return {"release": release, "secrets": text, "displaces": displaces, "left": left, "result": found}


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
    return any(change["consequence"] in (difference.RESTART, difference.STOP) for change in changes)


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
    return [change for item in differences for change in _of_process(item)]


def _of_process(item):
    """A difference of the process as changes: arguments flag by flag, without values that may be secret."""
    change = {"old": item["running"], "new": item["declared"], "consequence": difference.RESTART}
    if item["field"] != "argv" or not item["running"]:
        return [dict(change, field="running " + item["field"])]
    now, declared = difference.flags(item["running"]), difference.flags(item["declared"])
    now = {name: masks.HIDDEN if masks.named(name, value) else value for name, value in now.items()}
    found = difference.mapping("running flag ", now, declared, lambda name: difference.RESTART)
    return found or [dict(change, field="running argv")]  # the same flags in another order


def _unit(service, number, state):
    """How the unit on disk and in systemd differs from the committed release, as changes."""
    found = []
    path = paths.unit_file(service)
    on_disk = files.read_bytes(path)
    released = releases.unit_on_disk(service, number)
    if on_disk == b"":  # that every setting is gone says less than why
        word = "a link to /dev/null, which masks it" if os.path.islink(path) else "empty, which masks it"
        return [{"field": "unit file", "old": word, "new": "as released", "consequence": difference.RELOAD}]
    if on_disk != released.encode():
        found.append(("unit file", "missing" if on_disk is None else "edited", "as released"))
    if on_disk not in (None, released.encode()):
        settings = [difference.unit_settings(text) for text in (on_disk.decode("utf-8", "replace"), released)]
        edited = difference.mapping("unit file ", *settings, lambda name: difference.RELOAD)
        found += [(change["field"], change["old"], change["new"]) for change in edited]
    if state["UnitFileState"] not in ("enabled", ""):
        found.append(("unit enabled", state["UnitFileState"], "enabled"))
    if state["NeedDaemonReload"] == "yes":
        found.append(("unit loaded", "stale", "as on disk"))
    return [{"field": f, "old": old, "new": new, "consequence": difference.RELOAD} for f, old, new in found]


def _drop_ins(service):
    """The files that change the unit behind its release's back, as a change that a deploy does not make."""
    found = drop_ins.of_unit(paths.unit_name(service))
    change = {"field": "unit drop-in", "old": ", ".join(found), "new": "left; drift --repair moves it aside"}
    return [dict(change, consequence=difference.NONE)] if found else []


def _watch(release):
    """How the timer of the watch differs from the committed release, as changes."""
    found = "; ".join(timers.differing(timer.units(release)))
    change = {"field": "watch timer", "old": found, "new": "as released", "consequence": difference.NONE}
    return [change] if found else []


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
