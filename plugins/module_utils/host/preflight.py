"""Could this release start? Checks that touch nothing, before anything that runs is stopped."""

from __future__ import annotations

import os
import re
import tempfile

from . import difference, gpus, paths, ports, proc, releases, systemd, users
from .errors import DamagedError, HostError

FATAL, WARNING = "fatal", "warning"
FREE_BYTES = 64 << 20  # room for the release and the journals


def checks(release, displaced=()):
    """All checks of a release: a list of {"id", "severity", "passed", "message", "evidence", "repair"}.

    What the service itself and the services it displaces hold now will be free when the release starts.
    """
    freed = {paths.unit_name(service) for service in (release["service"], *displaced)}
    results = []
    for name, severity, check in CHECKS:
        try:
            found = check(release, freed) if check in (port, claim) else check(release)
        except HostError as error:
            found = [(str(error), "")]
        results += [_result(name, severity, False, message, repair) for message, repair in found] or [
            _result(name, severity, True, "", "")
        ]
    return results


def refused(results):
    """Messages of the failed fatal checks."""
    return [result["message"] for result in results if result["severity"] == FATAL and not result["passed"]]


def _result(name, severity, passed, message, repair):
    return {
        "id": name,
        "severity": severity,
        "passed": passed,
        "message": message,
        "evidence": {},
        "repair": repair,
    }


def unit_is_ours(release):
    """The unit of that name is free or ours, not masked."""
    unit = paths.unit_name(release["service"])
    state = systemd.show(unit)
    if state["LoadState"] == "masked" or state["UnitFileState"].startswith("masked"):
        return [(f"{unit} is masked", f"somebody masked it on purpose; 'systemctl unmask {unit}' if that is over")]
    if systemd.ours(release["service"]) is False:
        return [
            (
                "{} exists and was not written by servewright".format(paths.unit_file(release["service"])),
                "give the service another name, or stop and remove that unit first",
            )
        ]
    if systemd.ours(release["service"]) is None and state["LoadState"] == "loaded":
        return [("a unit {} exists at {}".format(unit, state["FragmentPath"]), "give the service another name")]
    return []


def engine(release):
    """The engine's environment has what the command needs."""
    found = []
    for word in release["argv"][:2]:
        if word.startswith("/") and not os.access(word, os.X_OK):
            found.append(
                (
                    f"{word} is missing or cannot be executed",
                    "put {} {} into {}, or declare its folder as 'venv'".format(
                        release["engine"], release["version"], release["venv"]
                    ),
                )
            )
            break
    return found


def model(release):
    """The model's folder is there, with a config.json that the service's user can read."""
    path = release["model"]["path"]
    config = os.path.join(path, "config.json")
    if not os.path.isdir(path):
        return [(f"there is no model folder {path}", "declare the right model.path, or put the model there")]
    if not os.path.isfile(config):
        return [(f"{path} has no config.json, so it is not a model", "declare the folder that holds config.json")]
    if not users.can_read(release["user"], config):
        return [
            (
                "user {} cannot read {}".format(release["user"], config),
                "let everybody enter the folders above it and read it (chmod o+rX)",
            )
        ]
    return []


def port(release, freed):
    """The port is free, or held by a service that will be stopped."""
    listen = release["listen"]
    found = []
    for pid in ports.holders(listen["host"], listen["port"]):
        if pid == 0 or proc.unit(pid) not in freed:
            who = proc.describe(pid) if pid else "a process that cannot be seen"
            found.append(
                (
                    "port %d of %s is held by %s" % (listen["port"], listen["host"], who),
                    "declare another listen.port, or end that process",
                )
            )
    return found


def claim(release, freed):
    """The claimed GPUs are there, and held by nobody but services that will be stopped."""
    if not release["gpus"]:
        return []
    all_gpus = gpus.query()
    missing = sorted(set(release["gpus"]) - set(all_gpus))
    if missing:
        return [
            (
                "GPU {} is not there; nvidia-smi lists {}".format(
                    ", ".join(map(str, missing)), ", ".join(map(str, sorted(all_gpus))) or "none"
                ),
                "claim GPUs that are there; a GPU that has gone needs a reboot",
            )
        ]
    found = []
    for pid in gpus.holders(release["gpus"]):
        if proc.unit(pid) not in freed:
            found.append((f"a claimed GPU is held by {proc.describe(pid)}", "end that process, or claim other GPUs"))
    return found


def unit_text(release):
    """systemd accepts the unit, under its real name."""
    with tempfile.TemporaryDirectory(prefix="servewright-") as folder:
        path = os.path.join(folder, paths.unit_name(release["service"]))
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(releases.unit_text(release, 0))
        complaints = systemd.verify_unit(path)
    # The user and host.pyz come with the first deploy.
    return [
        (line.replace(path, paths.unit_name(release["service"])), "this is a defect of the unit template")
        for line in complaints
        if not re.search(r"host\.pyz|is not executable|Failed to (resolve|determine) user", line)
    ]


def limiter(release):
    """The restart limiter can trip, also when every start dies only after a whole load."""
    unit = difference.unit_settings(release["unit"])
    window = float(unit["Unit.StartLimitIntervalSec"])
    need = release["limits"]["restart_burst"] * release["limits"]["restart_delay"]
    if window <= need:
        return [
            (
                "StartLimitIntervalSec=%g can never trip: %d starts take at least %g s"
                % (window, release["limits"]["restart_burst"], need),
                "this is a defect of the unit template",
            )
        ]
    return []


def space(release):
    """There is room for a release and the journals."""
    found = []
    for folder in ("/etc", "/var/lib"):
        state = os.statvfs(folder)
        if state.f_bavail * state.f_frsize < FREE_BYTES or state.f_favail < 100:
            found.append(
                (
                    "less than %d MiB or 100 files are free under %s" % (FREE_BYTES >> 20, folder),
                    "make room there",
                )
            )
    return found


def intact(release):
    """What servewright wrote for this service earlier is still what it wrote."""
    try:
        pointer = releases.committed(release["service"])
        if pointer is not None:
            releases.load(release["service"], pointer["release"])
    except DamagedError as error:
        return [(str(error), "roll back to a release that is whole, or restore the file")]
    return []


def drop_ins(release):
    """No drop-in changes the unit behind its release's back; systemd merges them from every folder."""
    found = systemd.show(paths.unit_name(release["service"]))["DropInPaths"].split()
    return [(f"{path} changes the unit", "declare what it does and remove it; gates see its effect") for path in found]


CHECKS = (
    ("unit_name", FATAL, unit_is_ours),
    ("drop_ins", WARNING, drop_ins),
    ("engine", FATAL, engine),
    ("model", FATAL, model),
    ("port", FATAL, port),
    ("gpus", FATAL, claim),
    ("unit", FATAL, unit_text),
    ("restart_limit", FATAL, limiter),
    ("space", FATAL, space),
    ("intact", FATAL, intact),
)
