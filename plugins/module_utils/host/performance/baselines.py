"""How fast the starts of each release were on this host: a sealed file a release."""

from __future__ import annotations

import contextlib
import os

from .. import files, journal, paths, releases
from ..errors import DamagedError, HostError

STARTS = 10  # the latest; more would let a host's past hide its present


def key(release):
    """What has to be equal for two releases to be comparable. Version and options are not part: they are judged."""
    settings = release["verify"]["performance"]
    workload = {name: settings[name] for name in ("tokens", "long_prompt", "prompt", "concurrency")}
    return {"model": release["model"]["path"], "gpus": release["gpus"], "workload": workload}


def keep(release, number, results):
    """Keep what the gates of a release measured of this start, if that is known to be its own speed.

    What cannot be written is only said.
    """
    for gate in results:
        if gate["id"] == "performance" and gate["verdict"] == "passed" and gate["evidence"].get("undisturbed"):
            try:
                _record(release, number, gate["evidence"])
            except HostError as error:
                print("{}: no baseline is kept: {}".format(release["service"], error), flush=True)


def _record(release, number, evidence):
    """Add a start; one that is known already keeps its figures."""
    service, path = release["service"], _path(release["service"], number)
    try:
        found = _starts(path, key(release))
    except DamagedError:
        found = []  # it cannot be compared with; a whole file takes its place
    if any(start["invocation"] == evidence["invocation"] for start in found):
        return
    figures = {name: figure["median"] for name, figure in evidence["figures"].items()}
    found.append({"invocation": evidence["invocation"], "time": journal.now(), "figures": figures})
    files.write_sealed(path, {"service": service, "release": number, "key": key(release), "starts": found[-STARTS:]})


def comparable(release, number):
    """What release `number` is compared with: {"release", "reference", "starts"} or None, and notes.

    The `reference` are the starts of the committed release or, where that was not measured, of the one that started
    last; `starts` those of all releases with the same key, oldest first, each process once. The notes are about files
    that cannot be used.
    """
    pointer = releases.committed(release["service"])
    by_release, notes = {}, []
    for other in numbered(_folder(release["service"])):
        try:
            by_release[other] = _starts(_path(release["service"], other), key(release))
        except DamagedError as error:
            notes.append(str(error))
    if pointer is None or pointer["release"] != number:
        by_release.pop(number, None)  # it is what is judged
    every = {}
    for start in sorted((start for starts in by_release.values() for start in starts), key=lambda start: start["time"]):
        every.setdefault(start["invocation"], start)
    latest = list(every.values())[-STARTS:]
    if not latest:
        return None, notes
    reference = pointer["release"] if pointer else None
    if not by_release.get(reference):
        reference = max(by_release, key=lambda other: max((start["time"] for start in by_release[other]), default=""))
    return {"release": reference, "reference": by_release[reference], "starts": latest}, notes


def all_of(service):
    """The whole files of a service, oldest release first; damaged ones are left out."""
    found = []
    for number in numbered(_folder(service)):
        with contextlib.suppress(DamagedError):
            found.append(files.read_sealed(_path(service, number)))
    return found


def prune(service):
    """A baseline goes with its release."""
    for number in set(numbered(_folder(service))) - set(releases.numbers(service)):
        files.remove(_path(service, number))


def numbered(folder):
    """Numbers N of the files N.json in a folder, ascending."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def _folder(service):
    return os.path.join(paths.state(service), "baselines")


def _path(service, number):
    return os.path.join(_folder(service), f"{number}.json")


def _starts(path, wanted):
    """Starts in a file when it is there and its key is the wanted one."""
    found = files.read_sealed(path)
    return found["starts"] if found is not None and found["key"] == wanted else []
