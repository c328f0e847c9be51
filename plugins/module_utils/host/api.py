"""The commands of the modules: each takes plain data and gives plain data. Nothing here prints or exits."""

from __future__ import annotations

import time

from . import gates, journal, launch, lock, paths, ready, releases, systemd
from . import preflight as checks
from .assess import displaced
from .deploy import deploy, rollback
from .drift import Host, look
from .drift.repair import mend
from .errors import BusyError, HostError
from .http import HttpError
from .measure import run as measurement
from .measure import start as measuring
from .nccl import proof as nccl_proof
from .performance import baselines
from .performance import bench as performance_bench
from .results import VERDICTS, of_transaction, reported, result, seconds, verdict_of
from .watch import judge
from .watch import run as watching

__all__ = (
    "bench", "deploy", "drift", "follow", "history", "logs", "measure", "preflight", "proof", "records", "rollback",
    "status", "verify", "watch",
)  # fmt: skip


@reported
def follow(service, number, wait):
    """State of a transaction (`number` None: the latest); waits up to `wait` seconds for it to end."""
    found = journal.Journal.by_id(service, number) if number is not None else journal.latest(service)
    if found is None:
        return result(service, "error", message=f"{service} has no transaction")
    end = time.monotonic() + wait
    while not found.finished() and time.monotonic() < end:
        time.sleep(0.2)
    shown = of_transaction(found)
    steps = found.steps()
    if steps and "measure" in steps[0] and found.finished():
        shown["measured"] = measurement.kept(steps[0]["measure"])
    return shown


@reported
def measure(service, release, request, program, stop, requester="", reason="", lock_wait=0.0):
    """Start to measure NCCL with the engine and on the GPUs of a declared release: see the package measure."""
    others = displaced(release)
    return result(service, **measuring.start(release, request, program, stop, others, requester, reason, lock_wait))


def preflight(declared):
    """Every check of every declared release, whether it would change or not; nothing is written but a cache."""
    return [_preflighted(release) for release in declared]


def _preflighted(release):
    if not systemd.present():
        return result(release["service"], "refused", message="systemd is not PID 1 on this host")
    try:
        found = checks.checks(release, displaced(release))
    except HostError as error:
        return result(release["service"], "error", message=str(error))
    messages = checks.refused(found)
    return result(release["service"], "refused" if messages else "ok", message="; ".join(messages), checks=found)


def _committed(service):
    """Number of the committed release. Raises HostError when there is none."""
    pointer = releases.committed(service)
    if pointer is None:
        raise HostError(f"{service} has no committed release")
    return pointer["release"]


@reported
def verify(service):
    """Run the gates on the committed release, changing nothing."""
    number = _committed(service)
    other = lock.holder(service)
    if other is not None:
        raise BusyError(other)
    unit = paths.unit_name(service)
    state = systemd.show(unit)
    if not systemd.active(state):
        message = "the unit is {} ({})".format(state["ActiveState"], state["Result"])
        failure = ready.failed(releases.load(service, number), state, message)
        return result(
            service, "failed", release=number, message=str(failure), log=failure.diagnosis, cause=failure.cause
        )
    begin = time.monotonic()
    release = releases.load(service, number)
    results = gates.all_gates(release, number)
    failed = gates.first_failed(results)
    if not failed:
        baselines.keep(release, number, results)
    return result(
        service,
        "failed" if failed else "ok",
        release=number,
        gates=results,
        message=failed or "",
        seconds=round(time.monotonic() - begin, 3),
    )


@reported
def watch(service):
    """A light look at the committed release: what the timer of the watch would find now. Nothing is kept of it."""
    number = _committed(service)
    begin = time.monotonic()
    found, known, declared = watching.once(service)
    return result(
        service,
        {judge.HEALTHY: "ok", judge.BUSY: "ok", judge.HELD: "busy"}.get(known["verdict"], "failed"),
        release=number,
        message="; ".join(filter(None, (known["message"], known["note"]))),
        gates=found["gates"],
        watch={
            "verdict": known["verdict"],
            "since": journal.at(time.time() - (time.monotonic() - known["since"])),
            "failures": known["failures"],
            "declared": declared,
        },
        seconds=round(time.monotonic() - begin, 3),
    )


def drift(services, repair=False, allow_restart=False, requester="", reason="", lock_wait=0.0):
    """Compare services with their committed releases; with `repair` mend what can be mended.

    Gives one result a service: `ok` or `drift`, with `findings`; after a repair `mended`, or `running` (with the number
    of its transaction) where one is under way, or `pending` (call again when the running one has ended).
    """
    now = Host()
    looked = [look(service, now) for service in services]
    names = {found["service"] for found in looked if found["verdict"] == "drift"}
    if not repair or not names:
        return looked
    try:
        with lock.held(names, requester, reason, lock_wait) as notes:
            # What was true before the lock was held may not be true now.
            results = [mend(look(f["service"]), allow_restart) if f["service"] in names else f for f in looked]
            return _restarted(results, requester, reason, notes)
    except HostError as error:
        return [dict(f, verdict=verdict_of(error), message=str(error)) if f["service"] in names else f for f in looked]


def _restarted(looked, requester, reason, notes):
    """Start the first transaction that mending needs; the others wait for it."""
    started = False
    for found in looked:
        if not found.pop("restart", False):
            continue
        if started:
            found.update(verdict="pending")
            continue
        try:
            found.update(launch.restart(found["service"], found["release"], "repair", requester, reason, notes))
            started = found["verdict"] == "running"
        except HostError as error:
            found.update(verdict=verdict_of(error), message=str(error))
    return looked


@reported
def bench(service, levels, seconds):
    """Measure the running committed release for about `seconds`, at several numbers of streams, and keep the record."""
    number = _committed(service)
    other = lock.holder(service)
    if other is not None:
        raise BusyError(other)
    state = systemd.show(paths.unit_name(service))
    if not systemd.active(state):
        return result(service, "error", release=number, message="the unit is {}".format(state["ActiveState"]))
    release = releases.load(service, number)
    if not release["verify"].get("performance"):
        return result(service, "error", release=number, message="deploy it again: an earlier version released it")
    try:
        http, levels = ready.client(release, number), levels or performance_bench.LEVELS
        record = performance_bench.run(release, number, state["InvocationID"], http, levels, seconds)
    except HttpError as error:
        return result(service, "failed", release=number, message=str(error))
    performance_bench.keep(record)
    return result(service, "ok", release=number, record=record)


@reported
def records(service):
    """Records of benches and baselines of a service."""
    return result(service, "ok", **performance_bench.records(service))


@reported
def status(service):
    """What runs, which release it is, and whether a transaction is under way or was interrupted."""
    pointer = releases.committed(service)
    state = systemd.show(paths.unit_name(service))
    last = journal.latest(service)
    step = next((entry["step"] for entry in reversed(last.steps())), None) if last else None
    message = lock.holder(service) or ""
    if step not in (None, *journal.FINAL) and not message:
        message = f"transaction {last.number} was interrupted after '{step}'"
    number = pointer["release"] if pointer else None
    shown = {
        "active": state["ActiveState"],
        "sub": state["SubState"],
        "pid": state["MainPID"],
        "since": state["ActiveEnterTimestamp"],
        "restarts": state["NRestarts"],
        "enabled": state["UnitFileState"],
        "release": number,
        "transaction": step,
    }
    return result(service, "ok", release=number, message=message, state=shown)


@reported
def proof(service):
    """The proof of NCCL's settings that the committed release was verified with."""
    number = _committed(service)
    found = nccl_proof.stored(service, number)
    message = "" if found else f"release {number} has no proof: it has one GPU, or was never started with NCCL's log"
    return result(service, "ok", release=number, message=message, proof=found)


@reported
def history(service):
    """Transactions of a service, newest first."""
    entries = []
    for one in reversed(journal.all_of(service)):
        steps = one.steps()
        if steps:
            first, last = steps[0], steps[-1]
            entries.append(
                {
                    "transaction": one.number,
                    "release": first["release"],
                    "time": first["time"],
                    "command": first["command"],
                    "by": first["requester"],
                    "reason": first["reason"],
                    "verdict": VERDICTS.get(last["step"], last["step"]),
                    "seconds": seconds(first["time"], last["time"]),
                }
            )
    return result(service, "ok", history=entries)


@reported
def logs(service, lines):
    """Last log lines of the service's unit."""
    return result(service, "ok", log=systemd.log(paths.unit_name(service), lines))
