"""Could this release start? Checks that touch nothing, before anything that runs is stopped.

A check takes a Subject and gives a list of findings (fatal, warning, passed); an empty list means that all is well.
Every check runs, whatever another one found.
"""

from __future__ import annotations

from ..errors import HostError
from . import (
    account,
    attention,
    command_line,
    engine,
    fits,
    gpus,
    manager,
    model,
    network,
    resources,
    system,
    toolchain,
    topology,
    unit,
)
from .check import FATAL, Subject, fatal, passed, warning

CHECKS = (
    ("unit_name", unit.unit_is_ours),
    ("drop_ins", unit.drop_ins),
    ("unit", unit.unit_text),
    ("restart_limit", unit.limiter),
    ("timeouts", unit.timeouts),
    ("manager_environment", manager.environment),
    ("engine", engine.engine),
    ("command_line", command_line.command_line),
    ("toolchain", toolchain.toolchain),
    ("model", model.model),
    ("architecture", model.architecture),
    ("attention", attention.backend),
    ("weights", model.weights),
    ("tokenizer", model.tokenizer),
    ("repositories", model.repositories),
    ("context", fits.context),
    ("driver", gpus.driver),
    ("gpus_declared", gpus.as_declared),
    ("gpus", gpus.claim),
    ("gpu_health", gpus.health),
    ("gpu_errors", gpus.xids),
    ("gpu_memory", fits.memory),
    ("links", topology.links),
    ("peer_to_peer", topology.peer_to_peer),
    ("address", network.address),
    ("port", network.port),
    ("ports_of_others", network.other_services),
    ("interfaces", network.interfaces),
    ("host_name", network.host_name),
    ("user", account.user),
    ("caches", account.caches),
    ("shared_memory", resources.shared_memory),
    ("memory", resources.memory),
    ("limits", resources.limits),
    ("clock", resources.clock),
    ("space", system.space),
    ("intact", system.intact),
)
# Checks that refuse nothing, and so neither when they could not look.
WARNS = frozenset(("architecture", "gpu_health", "gpu_errors", "memory", "clock"))


def checks(release, displaced=()):
    """All checks of a release: a list of {"id", "severity", "passed", "message", "evidence", "repair"}.

    What the service itself and the services it displaces hold now will be free when the release starts.
    """
    subject = Subject(release, displaced)
    results = []
    for name, check in CHECKS:
        try:
            found = check(subject)
        except Exception as error:  # of any kind: one check that fails must not hide what the others find
            found = [(warning if name in WARNS else fatal)(_failure(error))]
        results += [dict(finding, id=name) for finding in found or [passed("")]]
    return results


def _failure(error):
    """Why a check gave no answer. What is no HostError is a defect of its code."""
    text = str(error) if isinstance(error, HostError) else f"{type(error).__name__}: {error}"
    return f"could not be looked at: {text}"


def refused(results):
    """Messages of the failed fatal checks."""
    return [result["message"] for result in results if result["severity"] == FATAL and not result["passed"]]
