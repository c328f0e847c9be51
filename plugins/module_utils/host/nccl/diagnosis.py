"""Names what a rank's log means to an operator, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from .messages import MESSAGES


@dataclass(frozen=True)
class Diagnosis:
    """Something an operator should know, by name. text is the line that says so; "" when it is about the whole log."""

    id: str
    meaning: str
    todo: str
    text: str = ""


def notice(text):
    """What a single message means: a list of one Diagnosis, [] when it is nothing special."""
    for known in MESSAGES:
        if known.pattern.search(text):
            return [Diagnosis(known.id, known.meaning, known.todo, text)]
    return []


def diagnose(log):
    """What a RankLog tells an operator, as a list of Diagnosis, beginning with what it lacks."""
    found = []
    if not log.lines and log.version is None:
        todo = "set NCCL_DEBUG=INFO and a NCCL_DEBUG_FILE that the service's user can write"
        return [Diagnosis("no-nccl-lines", "The file holds no line of NCCL.", todo)]
    if not log.communicators:
        todo = "add INIT to NCCL_DEBUG_SUBSYS, and see whether the engine came as far as to start NCCL"
        found.append(Diagnosis("no-communicator", "No communicator was started.", todo))
    for comm in log.communicators:
        if not comm.complete:
            meaning = f"Rank {comm.rank} of {comm.ranks} began to start a communicator and never ended."
            todo = "see which other ranks are missing, and check IOMMU, PCIe ACS and the network interface"
            found.append(Diagnosis("start-not-complete", meaning, todo))
    leads = any(comm.complete and comm.rank == 0 and comm.ranks > 1 for comm in log.communicators)
    if leads and not log.choices:
        todo = "add TUNING to NCCL_DEBUG_SUBSYS; with it there, no collective was called yet"
        found.append(Diagnosis("no-choices", "Nothing shows which algorithm and protocol ran.", todo))
    return found + log.noticed
