"""Names what a rank's log means to an operator, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from . import data

if TYPE_CHECKING:
    from .log import RankLog


@dataclass(frozen=True)
class Diagnosis:
    """Something an operator should know, by name. line is None when it is about the log as a whole."""

    id: str
    meaning: str
    todo: str
    line: int | None = None
    text: str = ""


class _Known(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    pattern: str
    meaning: str
    todo: str
    source: str


@lru_cache(maxsize=1)
def _messages() -> tuple[tuple[re.Pattern[str], _Known], ...]:
    rows = [_Known.model_validate(row) for row in data.load("log_messages.yml")["messages"]]
    return tuple((re.compile(row.pattern), row) for row in rows)


def notice(text: str, line: int) -> list[Diagnosis]:
    """What a single message means, [] when it is nothing special."""
    for pattern, known in _messages():
        if pattern.search(text):
            return [Diagnosis(known.id, known.meaning, known.todo, line, text)]
    return []


def diagnose(log: RankLog) -> list[Diagnosis]:
    """What the log tells an operator, beginning with what it lacks."""
    found: list[Diagnosis] = []
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
            found.append(Diagnosis("start-not-complete", meaning, todo, comm.line))
    leads = any(comm.complete and comm.rank == 0 and comm.ranks > 1 for comm in log.communicators)
    if leads and not log.choices:
        todo = "add TUNING to NCCL_DEBUG_SUBSYS; with it there, no collective was called yet"
        found.append(Diagnosis("no-choices", "Nothing shows which algorithm and protocol ran.", todo))
    return found + log.noticed
