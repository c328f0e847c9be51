"""What NCCL's log must show when the declared settings are in force, and where it shows something else.

Pure: an environment and logs in, findings out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FAILURE, WARNING = "failure", "warning"


@dataclass(frozen=True)
class Finding:
    """Something that a log shows, or fails to show. variable is None when it is not about a single one."""

    id: str
    severity: str
    variable: str | None
    text: str
    todo: str = ""


@dataclass(frozen=True)
class Logged:
    """A variable that every rank reads when its first communicator starts, and says so in its log.

    kind: number (printed as NCCL read it), level (printed as a word), text (printed as it stands), switch (a line
    only for the value 1). since: the first NCCL with that line.
    """

    kind: str
    since: tuple
    source: str


# Variables that are not here are read when they are needed, or never said to be: their absence shows nothing.
LOGGED = {
    "NCCL_PROTO": Logged("text", (2, 5), "src/graph/tuning.cc ncclTopoTuneModel"),
    "NCCL_ALGO": Logged("text", (2, 5), "src/graph/tuning.cc ncclTopoTuneModel"),
    "NCCL_NTHREADS": Logged("number", (2, 5), "src/graph/tuning.cc ncclTopoTuneModel"),
    "NCCL_LL128_NTHREADS": Logged("number", (2, 5), "src/graph/tuning.cc ncclTopoTuneModel"),
    "NCCL_BUFFSIZE": Logged("number", (2, 5), "src/init.cc computeBuffSizes"),
    "NCCL_LL_BUFFSIZE": Logged("number", (2, 5), "src/init.cc computeBuffSizes"),
    "NCCL_LL128_BUFFSIZE": Logged("number", (2, 5), "src/init.cc computeBuffSizes"),
    "NCCL_MAX_NCHANNELS": Logged("number", (2, 5), "src/graph/connect.cc ncclMaxNchannels"),
    "NCCL_MIN_NCHANNELS": Logged("number", (2, 5), "src/graph/connect.cc ncclMinNchannels"),
    "NCCL_MAX_CTAS": Logged("number", (2, 17), "src/init.cc envConfigOverride"),
    "NCCL_MIN_CTAS": Logged("number", (2, 17), "src/init.cc envConfigOverride"),
    "NCCL_P2P_LEVEL": Logged("level", (2, 5), "src/graph/paths.cc ncclGetLevel"),
    "NCCL_P2P_DISABLE": Logged("switch", (2, 23), "src/graph/paths.cc ncclGetLevel"),
    "NCCL_CUMEM_ENABLE": Logged("number", (2, 21), "src/misc/cudawrap.cc ncclCuMemEnable"),
    "NCCL_TUNER_PLUGIN": Logged("text", (2, 28), "src/plugin/tuner.cc"),
}
# NCCL 2.30.7 src/graph/topo.cc topoPathTypeStr; the numbers are an older order, everything above is SYS.
LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")
# Algorithms that a collective has (NCCL 2.30.7 src/graph/tuning.cc), as words of NCCL_ALGO in lower case.
ALGORITHMS = {
    "AllReduce": ("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree"),
    "AllGather": ("ring", "collnetdirect", "nvls", "pat"),
    "ReduceScatter": ("ring", "collnetdirect", "nvls", "pat"),
    "Broadcast": ("ring",),
    "Reduce": ("ring",),
}
PROTOCOLS = ("ll", "ll128", "simple")
_PER_COLLECTIVE = (2, 24)  # lists of the form ring;allreduce:tree
_NOT_TAKEN = ("value-changed", "word-ignored")
_FATAL = ("unknown-word", "nothing-left-to-run")
_LOG_SETTING = ("NCCL_DEBUG", "NCCL_CONF_FILE", "NCCL_WARN_ENABLE_DEBUG_INFO")


def declared(environment):
    """The NCCL settings of an environment that can be judged by a log: without those of the log itself."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith("NCCL_") and value and not name.startswith(_LOG_SETTING)
    }


def number(text):
    """The number a text stands for as everyone reads it, None for anything NCCL may read in its own way."""
    try:
        return int(text, 0)
    except ValueError:
        return None


def version(text):
    """The version of a log as a tuple of numbers, (0,) when it is not known."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text or "")
    return tuple(int(part) for part in match.groups() if part) if match else (0,)


def findings(environment, log):
    """What one rank's log shows against an environment: a list of Finding.

    `environment` is the declared one, `log` a log.RankLog.
    """
    settings = declared(environment)
    found = [finding for name, value in settings.items() for finding in _variable(name, value, settings, log)]
    for look in (_choices, _transports, _channels, _said):
        found += look(settings, log)
    return found


def _variable(name, value, settings, log):
    row, seen = LOGGED.get(name), log.settings.get(name)
    if seen is not None:
        if same(name, value, seen.value):
            return []
        severity = FAILURE if row else WARNING
        return [Finding("other-value", severity, name, f"{name} is {seen.value}, declared is {value}", _OTHER)]
    if row is None or version(log.version) < row.since:
        return []
    if row.kind == "switch" and number(value) != 1:
        return []
    if row.kind == "level":
        if number(settings.get("NCCL_P2P_DISABLE", "")) == 1:
            return []
        if value not in LEVELS and not value[:1].isdigit():
            text = f"{name}={value} was ignored: NCCL knows no such level"
            return [Finding("ignored", FAILURE, name, text, "write one of LOC, NVL, PIX, PXB, PHB, SYS")]
    return [Finding("not-seen", FAILURE, name, f"{name}={value} was not seen", _NOT_SEEN)]


_OTHER = "find out what sets it: the engine, a wrapper, or NCCL's settings files"
_NOT_SEEN = "find out what takes it away between the unit and the rank, such as Ray or a wrapper"


def same(name, value, seen):
    """Whether a value is the one that NCCL printed for a variable."""
    kind = LOGGED[name].kind if name in LOGGED else ""
    if kind == "level" and value[:1].isdigit():
        old = number(value)
        return old is not None and OLD_LEVELS[min(old, len(OLD_LEVELS) - 1)] == seen
    if kind in ("number", "switch") or number(seen) is not None:
        return number(value) == number(seen)
    return value == seen


def allowed(text, collective, words, nccl):
    """The words, in lower case, that NCCL_ALGO or NCCL_PROTO leaves to a collective; None when it says nothing of it.

    `words` are all there are, `nccl` is the version as a tuple.
    """
    chosen = None
    for place, entry in enumerate(text.split(";") if nccl >= _PER_COLLECTIVE else [text]):
        head, colon, tail = entry.partition(":")
        if colon and nccl >= _PER_COLLECTIVE:
            if head.strip().lower() != collective.lower():
                continue
            listed = tail
        elif place == 0:
            listed = entry
        else:
            continue
        named = {word.strip().lower() for word in listed.lstrip("^").split(",")}
        chosen = set(words) - named if listed.startswith("^") else named
    return chosen


def _choices(settings, log):
    """Calls that ran with an algorithm or protocol the declaration does not allow."""
    if not any(name in settings for name in ("NCCL_ALGO", "NCCL_PROTO")):
        return []
    nccl, found, outside = version(log.version), {}, set()
    for choice in log.choices:
        if choice.protocol is None:
            outside.add(f"{choice.function} [{choice.algorithm}]")
            continue
        has = ALGORITHMS.get(choice.function)
        if has is None:
            continue
        algorithm, protocol = choice.algorithm.lower().replace("_", ""), choice.protocol.lower()
        for name, ran, words in (("NCCL_ALGO", algorithm, has), ("NCCL_PROTO", protocol, PROTOCOLS)):
            may = allowed(settings[name], choice.function, words, nccl) if name in settings else None
            if may is None or ran in may:
                continue
            severity = FAILURE if may & set(words) else WARNING  # nothing that was listed could run
            text = (
                f"{choice.function} ran with {choice.algorithm}/{choice.protocol}, "
                f"which {name}={settings[name]} does not allow"
            )
            found.setdefault((text, name, severity), set()).add(choice.bytes)
    todo = "see what overrides it, such as a tuner plugin"
    result = [
        Finding("other-choice", severity, name, f"{text} (at {_sizes(sizes)} bytes)", todo)
        for (text, name, severity), sizes in found.items()
    ]
    if outside:
        text = "{} ran outside algorithm and protocol".format(", ".join(sorted(outside)))
        result.append(Finding("other-kernel", WARNING, None, text))
    return result


def _sizes(sizes):
    shown = [str(size) for size in sorted(sizes)]
    return ", ".join(shown if len(shown) < 5 else [*shown[:3], f"... {shown[-1]}"])


def _transports(settings, log):
    """Connections that the declaration rules out, or asks for in vain."""
    used, found = log.transports, []
    level = settings.get("NCCL_P2P_LEVEL")
    disabled = number(settings.get("NCCL_P2P_DISABLE", "")) == 1
    off = "NCCL_P2P_DISABLE" if disabled else "NCCL_P2P_LEVEL" if level in ("LOC", "0") else None
    if off and used.get("P2P"):
        text = "{} of {} connections use P2P, which {}={} turns off".format(
            used["P2P"], sum(used.values()), off, settings[off]
        )
        found.append(Finding("p2p-in-use", FAILURE, off, text, _OTHER))
    if number(settings.get("NCCL_SHM_DISABLE", "")) == 1 and used.get("SHM"):
        text = "{} of {} connections use shared memory, which NCCL_SHM_DISABLE=1 turns off".format(
            used["SHM"], sum(used.values())
        )
        found.append(Finding("shm-in-use", FAILURE, "NCCL_SHM_DISABLE", text, _OTHER))
    if level == "SYS" and not disabled and used and not used.get("P2P"):
        text = "NCCL_P2P_LEVEL=SYS is declared, and no connection uses P2P: {}".format(
            ", ".join(f"{count} {name}" for name, count in sorted(used.items()))
        )
        found.append(Finding("no-p2p", WARNING, "NCCL_P2P_LEVEL", text, "check the IOMMU and PCIe ACS of this host"))
    return found


def _channels(settings, log):
    """Communicators with more channels than the cap, or fewer than the floor."""
    found = []
    cap = min((n for n in (number(settings.get(x, "")) for x in _CAPS) if n and n > 0), default=None)
    floor = max((n for n in (number(settings.get(x, "")) for x in _FLOORS) if n and n > 0), default=0)
    for comm in log.communicators:
        if comm.channels is None or comm.ranks < 2:
            continue
        count = comm.channels
        if cap is not None and count > max(cap, floor):
            text = f"a communicator of {comm.ranks} ranks has {count} channels, the declared cap is {cap}"
            found.append(Finding("above-cap", FAILURE, next(x for x in _CAPS if x in settings), text, _OTHER))
        elif count < (floor if cap is None else min(cap, floor)):
            text = f"a communicator of {comm.ranks} ranks has {count} channels, fewer than the declared {floor}"
            found.append(Finding("below-floor", WARNING, next(x for x in _FLOORS if x in settings), text))
    return found


_CAPS = ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS")
_FLOORS = ("NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS")


def _said(settings, log):
    """What NCCL itself said: values it did not take, and trouble."""
    found = []
    for notice in log.noticed:
        match = re.search(r"NCCL_[A-Z0-9_]+", notice.text)
        name = match[0] if match else _asked(notice.text)
        text = f"{notice.meaning} NCCL says: {notice.text.strip()}" if notice.text else notice.meaning
        taken = notice.id in _FATAL or (notice.id in _NOT_TAKEN and name in settings)
        found.append(Finding(notice.id, FAILURE if taken else WARNING, name, text, notice.todo))
    return found


def _asked(text):
    """The variable of a line about channels that does not name it."""
    match = re.search(r"User asked for a (minimum|maximum)", text)
    return {"minimum": "NCCL_MIN_NCHANNELS", "maximum": "NCCL_MAX_NCHANNELS"}[match[1]] if match else None
