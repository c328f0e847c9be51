"""The commands of the modules: each takes plain data and gives plain data. Nothing here prints or exits."""

from __future__ import annotations

import datetime
import time

from . import difference, gates, library, lock, paths, preflight, releases, systemd, transaction, truth, users
from .errors import BusyError, HostError
from .journal import FINAL, Journal, all_of, latest

VERDICTS = {"committed": "committed", "restored": "rolled_back", "rollback_failed": "rollback_failed"}


def deploy(declared, secrets, check, requester="", reason="", lock_wait=0.0):
    """Bring services to their declared releases, as far as the start of the first transaction that is needed.

    `declared` is a list of releases, `secrets` maps service to name to value. With `check` nothing is written.
    Gives one result a service: `unchanged`, `changes` (check), `refused`, `busy`, `error`, `running` (with the number
    of its transaction) or `pending` (call again when the running one has ended).
    """
    if not systemd.present():
        return [_refusal(release, "systemd is not PID 1 on this host") for release in declared]
    assessed = [
        _guarded(release["service"], lambda r=release: _assess(r, secrets.get(r["service"], {})))
        for release in declared
    ]
    results = [item["result"] for item in assessed]
    work = [item for item in assessed if item["result"]["verdict"] == "changes"]
    for item in work:
        item["result"]["checks"] = preflight.checks(item["release"])
        messages = preflight.refused(item["result"]["checks"])
        if messages:
            item["result"].update(verdict="refused", message="; ".join(messages))
    if any(result["verdict"] in ("refused", "error") for result in results):
        for result in results:
            if result["verdict"] == "changes":
                result.update(
                    verdict="refused" if not check else "changes",
                    message="another service of this host was refused" if not check else "",
                )
        return results
    if check or not work:
        return results
    for item in work[1:]:
        item["result"]["verdict"] = "pending"
    first = work[0]
    first["result"].update(
        _guarded(first["release"]["service"], lambda: _start(first, requester, reason, lock_wait))["result"]
    )
    return results


def _start(item, requester, reason, lock_wait):
    release, result = item["release"], item["result"]
    service = release["service"]
    with lock.held(service, requester, reason, lock_wait):
        library.install()
        users.ensure(release["user"])
        number = releases.find(release, item["secrets"])
        if number is None:
            number = releases.stage(release, item["secrets"])
        pointer = releases.committed(service)
        previous = pointer["release"] if pointer else None
        restart = any(change["consequence"] == difference.RESTART for change in result["changes"])
        running = transaction.begin(service, number, previous, restart, "deploy", requester, reason)
        transaction.launch(service, running)
    return {"result": dict(result, verdict="running", transaction=running, release=number, previous=previous)}


def _guarded(service, function):
    """Turn an expected error into a result."""
    try:
        return function()
    except BusyError as error:
        return {"result": _result(service, "busy", message=str(error))}
    except HostError as error:
        return {"result": _result(service, "error", message=str(error))}


def _assess(release, secrets):
    """Compare a declared release with the committed one, the files and the running process."""
    service = release["service"]
    text = releases.secret_text(release, secrets)
    pointer = releases.committed(service)
    state = systemd.show(paths.unit_name(service))
    if pointer is None:
        changes = difference.between(None, release)
        return {"release": release, "secrets": text, "result": _result(service, "changes", changes=changes)}
    number = pointer["release"]
    changed = _changed_secrets(releases.secret_on_disk(service, number), text)
    started = releases.load(service, pointer["started"])
    changes = [c for c in difference.between(started, release, changed) if c["consequence"] == difference.RESTART]
    changes += [
        c
        for c in difference.between(releases.load(service, number), release, changed)
        if c["consequence"] != difference.RESTART
    ]
    if not any(change["consequence"] == difference.RESTART for change in changes):
        changes += [
            {
                "field": "running " + item["field"],
                "old": item["running"],
                "new": item["declared"],
                "consequence": difference.RESTART,
            }
            for item in _truth(release, state)
        ]
    changes += _unit_drift(service, number, state)
    verdict = "changes" if changes else "unchanged"
    return {
        "release": release,
        "secrets": text,
        "result": _result(service, verdict, changes=changes, release=number, previous=number),
    }


def _truth(release, state):
    if not systemd.active(state):
        return [{"field": "process", "declared": "running", "running": state["ActiveState"]}]
    return truth.differences(release, state)


def _unit_drift(service, number, state):
    """Files of the unit that differ from the committed release."""
    found = []
    text = releases.unit_on_disk(service, number)
    try:
        with open(paths.unit_file(service), encoding="utf-8", errors="replace") as stream:
            on_disk = stream.read()
    except FileNotFoundError:
        on_disk = None
    if on_disk != text:
        found.append(
            {
                "field": "unit file",
                "old": "missing" if on_disk is None else "edited",
                "new": "as released",
                "consequence": difference.RELOAD,
            }
        )
    if state["UnitFileState"] not in ("enabled", ""):
        found.append(
            {
                "field": "unit enabled",
                "old": state["UnitFileState"],
                "new": "enabled",
                "consequence": difference.RELOAD,
            }
        )
    if state["NeedDaemonReload"] == "yes":
        found.append({"field": "unit loaded", "old": "stale", "new": "as on disk", "consequence": difference.RELOAD})
    return found


def _changed_secrets(old, new):
    before, after = _by_name(old), _by_name(new)
    return {name for name in after if before.get(name) != after[name]}


def _by_name(text):
    """Entries of an environment file by name; a value may hold line breaks inside its quotes."""
    found, name = {}, None
    for line in text.split("\n"):
        if name is None or (found[name].endswith('"') and len(found[name]) > 1):
            name, _equals, value = line.partition("=")
            found[name] = value
        else:
            found[name] += "\n" + line
    return found


def rollback(service, to, requester="", reason="", lock_wait=0.0):
    """Start the transaction back to release `to`, or to the one committed before the current one when it is None."""

    def start():
        with lock.held(service, requester, reason, lock_wait):
            pointer = releases.committed(service)
            if pointer is None:
                return {"result": _result(service, "refused", message=f"{service} has no committed release")}
            number = to if to is not None else _before(service, pointer["release"])
            if number is None:
                return {
                    "result": _result(service, "refused", message="there is no release before %d" % pointer["release"])
                }
            release = releases.load(service, number)
            changes = difference.between(releases.load(service, pointer["started"]), release)
            if number == pointer["release"] and not _truth(release, systemd.show(paths.unit_name(service))):
                return {"result": _result(service, "unchanged", release=number, previous=number)}
            results = preflight.checks(release)
            if preflight.refused(results):
                return {
                    "result": _result(service, "refused", message="; ".join(preflight.refused(results)), checks=results)
                }
            library.install()
            users.ensure(release["user"])
            restart = number == pointer["release"] or any(c["consequence"] == difference.RESTART for c in changes)
            running = transaction.begin(service, number, pointer["release"], restart, "rollback", requester, reason)
            transaction.launch(service, running)
            return {
                "result": _result(
                    service,
                    "running",
                    changes=changes,
                    checks=results,
                    transaction=running,
                    release=number,
                    previous=pointer["release"],
                )
            }

    return _guarded(service, start)["result"]


def _before(service, current):
    """The release that was committed most lately before the current one."""
    for journal in reversed(all_of(service)):
        last = journal.steps()[-1:]
        if last and last[0]["step"] == "committed" and last[0]["release"] not in (current, None):
            return last[0]["release"]
    return None


def follow(service, number, wait):
    """State of a transaction (`number` None: the latest); waits up to `wait` seconds for it to end."""

    def look():
        journal = Journal.by_id(service, number) if number is not None else latest(service)
        if journal is None:
            return {"result": _result(service, "error", message=f"{service} has no transaction")}
        end = time.monotonic() + wait
        while not journal.finished() and time.monotonic() < end:
            time.sleep(0.2)
        return {"result": transaction_result(service, journal)}

    return _guarded(service, look)["result"]


def transaction_result(service, journal):
    """Result of a transaction, made from its journal alone."""
    steps = journal.steps()
    if not steps:
        return _result(service, "running", transaction=journal.number)
    first, last = steps[0], steps[-1]
    back = [i for i, step in enumerate(steps) if step["step"] == "rolling_back"]
    verified = [(i, step["gates"]) for i, step in enumerate(steps) if step["step"] == "verified"]
    result = _result(
        service,
        VERDICTS.get(last["step"], "running"),
        transaction=journal.number,
        release=last.get("release", first["release"]),
        previous=first["previous"],
        steps=steps,
        seconds=_seconds(first["time"], last["time"]),
        gates=next((g for i, g in verified if not back or i < back[0]), []),
        rollback_gates=next((g for i, g in verified if back and i > back[0]), []),
        next_steps=last.get("next_steps", []),
    )
    if back:
        result["message"] = steps[back[0]]["reason"]
        result["log"] = steps[back[0]].get("log", [])
    if last.get("message"):
        result["message"] = "; ".join(part for part in (result.get("message"), last["message"]) if part)
    if last["step"] not in FINAL:
        lines = systemd.log(paths.unit_name(service), 1)
        result.update(step=last["step"], line=lines[-1] if lines else "")
    return result


def verify(service):
    """Run the gates on the committed release, changing nothing."""

    def look():
        pointer = releases.committed(service)
        if pointer is None:
            return {"result": _result(service, "error", message=f"{service} has no committed release")}
        other = lock.holder(service)
        if other is not None:
            raise BusyError(f"{service}: {other}")
        release = releases.load(service, pointer["release"])
        state = systemd.show(paths.unit_name(service))
        if not systemd.active(state):
            return {
                "result": _result(
                    service,
                    "failed",
                    release=pointer["release"],
                    message="the unit is {} ({})".format(state["ActiveState"], state["Result"]),
                    log=systemd.log(paths.unit_name(service), 20),
                )
            }
        begin = time.monotonic()
        results = gates.all_gates(release, pointer["release"])
        failed = [result for result in results if result["verdict"] == gates.FAILED]
        return {
            "result": _result(
                service,
                "failed" if failed else "ok",
                release=pointer["release"],
                gates=results,
                message="gate {} failed: {}".format(failed[0]["id"], failed[0]["message"]) if failed else "",
                seconds=round(time.monotonic() - begin, 3),
            )
        }

    return _guarded(service, look)["result"]


def status(service):
    """What runs, which release it is, and whether a transaction is under way or was interrupted."""

    def look():
        pointer = releases.committed(service)
        state = systemd.show(paths.unit_name(service))
        journal = latest(service)
        last = journal.steps()[-1:] if journal else []
        busy = lock.holder(service)
        message = busy or ""
        if last and last[0]["step"] not in FINAL and busy is None:
            message = "transaction %d was interrupted after '%s'" % (journal.number, last[0]["step"])
        return {
            "result": _result(
                service,
                "ok",
                release=pointer["release"] if pointer else None,
                message=message,
                state={
                    "active": state["ActiveState"],
                    "sub": state["SubState"],
                    "pid": state["MainPID"],
                    "since": state["ActiveEnterTimestamp"],
                    "restarts": state["NRestarts"],
                    "enabled": state["UnitFileState"],
                    "release": pointer["release"] if pointer else None,
                    "transaction": last[0]["step"] if last else None,
                },
            )
        }

    return _guarded(service, look)["result"]


def history(service):
    """Transactions of a service, newest first."""

    def look():
        entries = []
        for journal in reversed(all_of(service)):
            steps = journal.steps()
            if steps:
                first, last = steps[0], steps[-1]
                entries.append(
                    {
                        "transaction": journal.number,
                        "release": first["release"],
                        "time": first["time"],
                        "command": first["command"],
                        "by": first["requester"],
                        "reason": first["reason"],
                        "verdict": VERDICTS.get(last["step"], last["step"]),
                        "seconds": _seconds(first["time"], last["time"]),
                    }
                )
        return {"result": _result(service, "ok", history=entries)}

    return _guarded(service, look)["result"]


def logs(service, lines):
    """Last log lines of the service's unit."""
    return _guarded(
        service, lambda: {"result": _result(service, "ok", log=systemd.log(paths.unit_name(service), lines))}
    )["result"]


def _seconds(begin, end):

    parse = datetime.datetime.fromisoformat
    return round((parse(end) - parse(begin)).total_seconds(), 3)


def _refusal(release, message):
    return _result(release["service"], "refused", message=message)


def _result(service, verdict, **more):
    return dict(
        {
            "service": service,
            "verdict": verdict,
            "release": None,
            "previous": None,
            "message": "",
            "changes": [],
        },
        **more,
    )
