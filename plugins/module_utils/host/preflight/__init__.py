"""Could this release start? Checks that touch nothing, before anything that runs is stopped."""

from __future__ import annotations

from .. import paths
from ..errors import HostError
from . import engine, gpus, model, system, unit

FATAL, WARNING = "fatal", "warning"

CHECKS = (
    ("unit_name", FATAL, unit.unit_is_ours),
    ("drop_ins", WARNING, unit.drop_ins),
    ("engine", FATAL, engine.engine),
    ("model", FATAL, model.model),
    ("port", FATAL, system.port),
    ("gpus", FATAL, gpus.claim),
    ("unit", FATAL, unit.unit_text),
    ("restart_limit", FATAL, unit.limiter),
    ("space", FATAL, system.space),
    ("intact", FATAL, system.intact),
)


def checks(release, displaced=()):
    """All checks of a release: a list of {"id", "severity", "passed", "message", "evidence", "repair"}.

    What the service itself and the services it displaces hold now will be free when the release starts.
    """
    freed = {paths.unit_name(service) for service in (release["service"], *displaced)}
    results = []
    for name, severity, check in CHECKS:
        try:
            found = check(release, freed) if check in (system.port, gpus.claim) else check(release)
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
