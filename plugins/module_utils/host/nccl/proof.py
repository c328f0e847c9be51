"""The proof of one start: what every rank of a service saw and did, from NCCL's own log and from its processes."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter

from .. import files, paths, proc, systemd
from ..errors import HostError
from ..journal import now
from ..quoting import environment_file_line
from . import debug, expect, library, settings_files
from .diagnosis import diagnose
from .log import parse

SCHEMA = 1
MOST_BYTES = 64 << 20  # of one log; ours cannot grow beyond debug.SIZE


def switch_on(release):
    """Have the next start of a service write NCCL's log, if its proof needs that and it does not set it by itself."""
    if wanted(release) and release["proof"]["mode"] == "verify":
        lines = [environment_file_line(*item) for item in sorted(debug.missing(release["environment"]).items())]
        try:
            files.write(paths.nccl_log(release["service"]), "".join(lines))
        except HostError as error:  # the gate says that there is no proof; a service that is down serves nobody
            print(f"{release['service']}: no proof of NCCL's settings: {error}", flush=True)


def switch_off(service):
    """Let later starts of a service run without NCCL's log; the process that runs keeps what it has."""
    files.remove(paths.nccl_log(service))


def wanted(release):
    """Whether a release has several ranks whose settings are to be proved. Older releases do not say."""
    asked = release.get("proof") or {"mode": "off", "ranks": 0}
    return asked["mode"] != "off" and asked["ranks"] > 1


def path_of(service, number):
    return os.path.join(paths.state(service), "nccl", f"{number}.json")


def stored(service, number):
    """The proof of a release, or None. Raises DamagedError."""
    return files.read_sealed(path_of(service, number))


def numbers(service):
    """Numbers of the releases that have a proof."""
    try:
        names = os.listdir(os.path.join(paths.state(service), "nccl"))
    except FileNotFoundError:
        return []
    return sorted(int(name.partition(".")[0]) for name in names if name.endswith(".json"))


def store(service, number, proof):
    files.write_sealed(path_of(service, number), proof)


def logs(pids, pattern):
    """NCCL's logs of some processes: (a list of (pid, RankLog), a list of texts about files that cannot be read).

    `pattern` is NCCL_DEBUG_FILE. NCCL keeps its file open, so it is found among the files a process has open: an older
    file can not be taken for it, and neither can one of another process.
    """
    found, trouble = [], []
    for pid in pids:
        name = re.compile(_expression(pattern, pid) + r"(?: \(deleted\))?$")
        folder = "/proc/%d/fd" % pid
        try:
            handles = [os.path.join(folder, handle) for handle in sorted(os.listdir(folder), key=int)]
        except OSError:
            continue  # the process ended
        for handle in handles:
            try:
                path = os.readlink(handle)
                if not name.match(path) or not stat.S_ISREG(os.stat(handle).st_mode):
                    continue
                with open(handle, "rb") as stream:
                    text = stream.read(MOST_BYTES).decode("utf-8", "replace")
            except FileNotFoundError:
                continue  # closed while we looked
            except OSError as error:
                trouble.append(f"{path} cannot be read: {error.strerror}")
                break
            found.append((pid, parse(text, path)))
            break
    return found, trouble


def _expression(pattern, pid):
    """NCCL_DEBUG_FILE as a regular expression for one process; %h is the host's name, %% a percent sign."""
    parts = {"%p": str(pid), "%h": "[^/]*", "%%": "%"}
    return "".join(parts.get(part, re.escape(part)) for part in re.findall(r"%[%hp]|.", pattern))


def collect(release, state):
    """What the running processes of a release show, without a judgement, or None when they were started without a log.

    `state` is what systemd.show gives.
    """
    main = proc.environment(state["MainPID"]) or {}
    if not debug.logs(main):
        return None
    pattern = main["NCCL_DEBUG_FILE"]
    pids = systemd.pids(state["ControlGroup"])
    found, trouble = logs(pids, pattern)
    ranks = [(pid, log) for pid, log in found if any(comm.ranks > 1 for comm in log.communicators)]
    return {"pids": pids, "logs": [log for _pid, log in found], "ranks": ranks, "trouble": trouble, "pattern": pattern}


def judge(release, seen):
    """Failures and warnings of what collect() gave: two lists of texts, each with what to do."""
    failures, warnings = list(seen["trouble"]), []
    if not seen["ranks"]:
        failures += _nothing(release, seen)
        return failures, warnings
    count, expected = len(seen["ranks"]), release["proof"]["ranks"]
    if count < expected:
        failures.append(
            f"{count} of {expected} ranks wrote a log{_absent(seen['ranks'], expected)}: see that NCCL's variables "
            "reach the other processes (Ray copies only a listed set)"
        )
    by_text = {}
    for _pid, log in seen["ranks"]:
        for finding in [*expect.findings(release["environment"], log), *_diagnoses(log)]:
            by_text.setdefault(finding, []).append(name_of(log))
    for finding, names in by_text.items():
        text = "{} ({}){}".format(finding.text, _listed(names, expected), f": {finding.todo}" if finding.todo else "")
        (failures if finding.severity == expect.FAILURE else warnings).append(text)
    return failures, warnings


def _nothing(release, seen):
    """Why no rank's log is there."""
    if seen["logs"]:
        return [f"{item.meaning} ({seen['logs'][0].file}): {item.todo}" for item in diagnose(seen["logs"][0])[:1]]
    sizes = release["proof"]
    if not sizes["joined"] or seen["trouble"]:
        return []  # ranks that only share the requests need no communicator
    return [
        f"no process of the service wrote {seen['pattern']}: see that NCCL's variables reach the ranks, and that the "
        "service's user can write there"
    ]


def _diagnoses(log):
    """Diagnoses of a rank's log as findings; what expect.findings judges itself is left out."""
    started = any(comm.complete and comm.ranks > 1 for comm in log.communicators)
    severity = expect.WARNING if started else expect.FAILURE
    judged = {id(notice) for notice in log.noticed}
    return [
        expect.Finding(item.id, severity, None, item.meaning, item.todo)
        for item in diagnose(log)
        if id(item) not in judged
    ]


def main_communicator(log):
    """The largest communicator of a rank, the first of several."""
    return max(log.communicators, key=lambda comm: comm.ranks)


def name_of(log):
    comm = main_communicator(log)
    return f"rank {comm.rank}"


def _absent(ranks, expected):
    """Which ranks are missing, where the communicators tell."""
    comms = [main_communicator(log) for _pid, log in ranks]
    if {comm.ranks for comm in comms} != {expected}:
        return ""
    absent = sorted(set(range(expected)) - {comm.rank for comm in comms})
    return " (missing: rank {})".format(", ".join(map(str, absent))) if absent else ""


def _listed(names, expected):
    if len(names) == expected and expected > 1:
        return "every rank"
    return "rank " + ", ".join(sorted({name[len("rank ") :] for name in names}, key=int))


def document(release, number, state, seen):
    """The proof as it is stored: plain data, told from what collect() gave."""
    libraries = library.loaded(seen["pids"])
    return {
        "schema": SCHEMA,
        "service": release["service"],
        "release": number,
        "time": now(),
        "invocation": state["InvocationID"],
        "declared": expect.declared(release["environment"]),
        "ranks": sorted((_rank(pid, log) for pid, log in seen["ranks"]), key=lambda rank: (rank["rank"], rank["pid"])),
        "choices": _choices(log for _pid, log in seen["ranks"]),
        "libraries": libraries,
        "undeclared": undeclared(release, seen),
    }


def _rank(pid, log):
    comm = main_communicator(log)
    return {
        "pid": pid,
        "file": log.file,
        "version": log.version,
        "rank": comm.rank,
        "ranks": comm.ranks,
        "gpu": comm.bus_id,
        "variables": {
            name: setting.value
            for name, setting in sorted(log.settings.items())
            if name.startswith("NCCL_") and setting.origin == "environment"
        },
        "channels": log.channels,
        "communicators": [
            {"ranks": one.ranks, "channels": one.channels, "complete": one.complete}
            for one in log.communicators
        ],
        "connections": _connections(log),
    }


def _connections(log):
    """Connections of a rank to others: by target and transport the channels, as text such as 0-15."""
    found = {}
    for one in log.connections:
        found.setdefault((one.source, one.target, f"{one.transport}/{one.detail}"), set()).add(one.channel)
    return [
        {"from": source, "to": target, "via": via, "channels": spans(channels)}
        for (source, target, via), channels in sorted(found.items())
    ]


def spans(numbers):
    """Numbers as text: 0-3,7."""
    parts = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def _choices(found):
    """What calls ran with, by collective and size; only the first rank of a communicator says so."""
    calls, most = Counter(), {}
    for log in found:
        for one in log.choices:
            key = (one.function, one.bytes, one.algorithm, one.protocol)
            calls[key] += 1
            most[key] = max(most.get(key, 0), one.channels or 0)
    return [
        {
            "function": function,
            "bytes": size,
            "algorithm": algorithm,
            "protocol": protocol,
            "channels": most[function, size, algorithm, protocol] or None,
            "calls": count,
        }
        for (function, size, algorithm, protocol), count in sorted(
            calls.items(), key=lambda item: [part or "" for part in item[0]]
        )
    ]


def undeclared(release, seen):
    """Settings that NCCL saw and nobody declared, with where they come from: a list of {"name", "value", "source"}."""
    known = settings_files.found(release["environment"], release["user"])
    out = {}
    for _pid, log in seen["ranks"]:
        for name, setting in log.settings.items():
            if setting.origin != "environment" or name in release["environment"] or not name.startswith("NCCL_"):
                continue
            value, source = known.get(name, (None, None))
            where = source if value is not None and expect.same(name, value, setting.value) else "the engine"
            out[name] = {"name": name, "value": setting.value, "source": where}
    return [out[name] for name in sorted(out)]


def explained(release, state):
    """What NCCL's log says of a start that does not come to an end, as text; "" when it says nothing."""
    try:
        seen = collect(release, state) if wanted(release) else None
    except HostError:
        return ""
    if not seen or not seen["ranks"]:
        return ""
    incomplete = [
        (log, item) for _pid, log in seen["ranks"] for item in diagnose(log) if item.id == "start-not-complete"
    ]
    if incomplete:
        log, item = incomplete[0]
        return f"NCCL's start hangs: {item.meaning} {item.todo[0].upper()}{item.todo[1:]}. ({log.file})"
    noticed = [item for _pid, log in seen["ranks"] for item in log.noticed if item.id != "ll128-off"]
    if noticed:
        return f"NCCL says: {noticed[0].meaning} {noticed[0].todo[0].upper()}{noticed[0].todo[1:]}."
    return (
        "NCCL's communicators are complete. If nothing moves since, its first call hangs: check that the IOMMU is off "
        "or in passthrough mode and PCIe ACS is off, or declare NCCL_P2P_DISABLE=1."
    )
