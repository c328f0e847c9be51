"""NCCL's log of one start: the variables that turn it on, and what of them a service sets by itself.

A process goes on logging for as long as it lives, a line for every call outside a CUDA graph. So the files are in a
small file system of memory that the unit has for itself: it holds the start, takes no more however long the service
runs, and is gone with the process.
"""

from __future__ import annotations

FOLDER = "/run/servewright/nccl"
SIZE = "32M"
# INIT: communicators, channels and transports. ENV: values. TUNING: algorithm and protocol of each call.
NEEDED = ("INIT", "ENV", "TUNING")
_LEVELS = ("INFO", "TRACE")
VARIABLES = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING,P2P,SHM,NET",
    "NCCL_DEBUG_FILE": FOLDER + "/%h.%p",
}


def missing(environment):
    """The variables that a proof needs beyond an environment's own, by name; what the environment sets wins."""
    return {name: value for name, value in VARIABLES.items() if not environment.get(name)}


def unfit(environment):
    """Why a service's own log settings leave nothing to prove: a list of (variable, reason, what to write instead)."""
    found = []
    level = environment.get("NCCL_DEBUG")
    if level and level.upper() not in _LEVELS:
        found.append(("NCCL_DEBUG", f"at level {level} NCCL does not log its settings", "INFO, or leave it out"))
    subsystems = environment.get("NCCL_DEBUG_SUBSYS")
    if subsystems:
        lacking = [name for name in NEEDED if not _covers(subsystems, name)]
        if lacking:
            reason = "it leaves out {}, which the proof reads".format(", ".join(lacking))
            found.append(("NCCL_DEBUG_SUBSYS", reason, "{}, or leave it out".format(VARIABLES["NCCL_DEBUG_SUBSYS"])))
    path = environment.get("NCCL_DEBUG_FILE")
    if path and "%p" not in path:
        found.append(("NCCL_DEBUG_FILE", "without %p every rank writes over the same file", "a path with %p"))
    return found


def logs(environment):
    """Whether a process with this environment writes NCCL's settings to a file of its own."""
    return environment.get("NCCL_DEBUG", "").upper() in _LEVELS and bool(environment.get("NCCL_DEBUG_FILE"))


def _covers(text, name):
    inverted = text.startswith("^")
    words = {word.strip().upper() for word in text[1 if inverted else 0 :].split(",")}
    listed = name in words or "ALL" in words
    return listed != inverted


def ours(environment):
    """Names of the variables in a running process that a transaction set for its start."""
    if environment.get("NCCL_DEBUG_FILE", "").startswith(FOLDER + "/"):
        return frozenset(VARIABLES)
    return frozenset()
