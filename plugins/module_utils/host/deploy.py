"""Deploy and rollback as far as the start of a transaction: what is declared is assessed, checked and staged."""

from __future__ import annotations

from . import (
    downtime,
    drift_timer,
    fingerprint,
    launch,
    library,
    lock,
    paths,
    preflight,
    releases,
    retention,
    surroundings,
    systemd,
    transaction,
    users,
)
from .assess import assess, between, displaced, restarts, running
from .errors import HostError
from .preflight import command_line
from .results import reported, result, verdict_of


def deploy(declared, secrets, check, requester="", reason="", lock_wait=0.0, host=None, plan=None):
    """Bring services to their declared releases, as far as the start of the first transaction that is needed.

    `declared` is a list of releases, `secrets` maps service to name to value, `host` is what the host declares about
    itself (None: nothing is said). With `check` nothing is written.
    `plan` maps service to what fingerprint.mismatch wants; nothing that differs from it is touched.
    Gives one result a service: `unchanged`, `changes` (check), `refused`, `busy`, `error`, `running` (with the number
    of its transaction) or `pending` (call again when the running one has ended).
    """
    if not systemd.present():
        return [result(r["service"], "refused", message="systemd is not PID 1 on this host") for r in declared]
    try:
        timer = drift_timer.changes(host) if host is not None else []
    except HostError as error:
        return [result(r["service"], "refused", message=str(error)) for r in declared]
    results = _deploy(declared, secrets, check, requester, reason, lock_wait, plan, timer)
    if timer and not any(found["verdict"] in ("refused", "error", "busy") for found in results):
        if not check:
            drift_timer.apply(host)
        for found in results[:1]:
            found["changes"] = found["changes"] + timer
            if found["verdict"] == "unchanged":
                found["verdict"] = "changes" if check else "committed"
    return results


def _deploy(declared, secrets, check, requester, reason, lock_wait, plan, timer):
    items = _assessed_all(declared, secrets, check, plan, timer)
    changing = [item for item in items if item["result"]["verdict"] == "changes"]
    if check or not changing:
        return _checked(items, check)
    names = {item["release"]["service"] for item in changing}
    try:
        with lock.held(names.union(*(item["displaces"] for item in changing)), requester, reason, lock_wait) as notes:
            transaction.finish_interrupted(names)
            # What was true before the lock was held may not be true now.
            items = _assessed_all(declared, secrets, check, plan, timer)
            results = _checked(items, check)
            for item in items:
                if item["result"]["verdict"] == "changes":
                    first = all(found["verdict"] != "running" for found in results)
                    item["result"].update(_start(item, requester, reason, notes) if first else {"verdict": "pending"})
            return results
    except HostError as error:
        verdict = verdict_of(error)
        return [
            result(item["result"]["service"], verdict, message=str(error)) if item in changing else item["result"]
            for item in items
        ]


def _assessed_all(declared, secrets, check, plan, timer):
    """All releases assessed: with what a plan says of each, and what is not as it was planned refused.

    `timer` are changes of the host itself.
    """
    now = surroundings.Now()
    return [_assessed(release, secrets.get(release["service"], {}), check, plan, timer, now) for release in declared]


def _assessed(release, secrets, check, plan, timer, now):
    """A declared release with its result so far, or with the error that assessing it met."""
    try:
        item = assess(release, secrets)
        found = item["result"]
        if check:
            found.update(declared=release["digest"], fingerprint=fingerprint.of(item, timer, now))
            if restarts(found["changes"]):
                found["downtime"] = downtime.expected(release["service"], release["model"]["path"])
            if item["left"]:
                found.update(verdict="changes", changes=found["changes"] + item["left"])
        message = fingerprint.mismatch(item, plan, timer, now) if plan is not None else None
        if message:
            found.update(verdict="refused", message=message)
        return item
    except HostError as error:
        return {"release": release, "result": result(release["service"], verdict_of(error), message=str(error))}


def _checked(items, check):
    """Results after preflight; one service that is refused holds back all that would change on this host."""
    results = [item["result"] for item in items]
    for item in items:
        if item["result"]["verdict"] == "changes":
            item["result"]["checks"] = preflight.checks(item["release"], item["displaces"])
            messages = preflight.refused(item["result"]["checks"])
            if messages:
                item["result"].update(verdict="refused", message="; ".join(messages))
    if not check and any(found["verdict"] in ("refused", "error") for found in results):
        for found in results:
            if found["verdict"] == "changes":
                found.update(verdict="refused", message="another service of this host was refused")
    return results


def _start(item, requester, reason, notes):
    """Stage a release and start its transaction; gives what changes in the result."""
    release = item["release"]
    service = release["service"]
    library.install()
    command_line.keep()
    users.ensure(release["user"])
    number = releases.find(release, item["secrets"])
    if number is None:
        number = releases.stage(release, item["secrets"])
    facts = {"displaces": item["displaces"], "restart": restarts(item["result"]["changes"]), "notes": notes}
    return launch.launch(service, number, "deploy", requester, reason, **facts)


@reported
def rollback(service, to, requester="", reason="", lock_wait=0.0):
    """Start the transaction back to release `to`, or to the one committed before the current one when it is None."""
    pointer = releases.committed(service)
    if pointer is None:
        return result(service, "refused", message=f"{service} has no committed release")
    current = pointer["release"]
    number = to if to is not None else retention.before(service, current)
    if number is None:
        return result(service, "refused", message=f"no release was committed before {current}")
    release = releases.startable(service, number)
    stops = displaced(release)
    with lock.held({service, *stops}, requester, reason, lock_wait) as notes:
        transaction.finish_interrupted([service])
        changes = between(pointer, release, releases.secret_on_disk(service, number))
        if number == current:
            changes += running(release, systemd.show(paths.unit_name(service)))
            if not changes:
                return result(service, "unchanged", release=number, previous=number)
        looked = preflight.checks(release, stops)
        messages = preflight.refused(looked)
        if messages:
            return result(service, "refused", message="; ".join(messages), checks=looked)
        library.install()
        users.ensure(release["user"])
        facts = {"displaces": stops, "restart": restarts(changes), "notes": notes}
        launched = launch.launch(service, number, "rollback", requester, reason, **facts)
        return result(service, changes=changes, checks=looked, **launched)
