"""The cutover: a state machine whose every step is on disk before it is done, and which always ends in a verdict.

    staged -> preflighted -> stopping -> waiting_gpus -> starting -> loading -> verifying -> committed
    any of them -> rolling_back -> restored | rollback_failed

It runs in a transient unit of its own, so nothing that happens to the controller can end it. If it is ended itself,
or the host goes down, recover() goes back to the committed release.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from . import files, gates, gpus, leftovers, paths, ready, reference, releases, retention, surroundings, systemd
from .errors import BusyError, HostError, StepError
from .journal import Journal, latest
from .nccl import proof
from .performance import baselines
from .proc import describe
from .watch import timer

MARGIN_SECONDS = 30  # what systemctl may take beyond the unit's own timeouts
LOADING_GRACE_SECONDS = 3  # from SIGTERM to SIGKILL for a release that has not served yet
NOTHING = "nothing ran before, and nothing runs now"


def begin(service, **facts):
    """Write the journal of a new transaction; gives its number.

    `facts` are: `release` to go to, `previous` to go back to (None: nothing), `restart` (or only reload the unit),
    `displaces` (other services that hold claimed GPUs: stopped, and started again when this fails), `command`,
    `requester`, `reason` and `notes`.
    """
    journal = Journal.new(service)
    journal.step("staged", **facts)
    return journal.number


def launch(service, number, command="transact"):
    """Start the transaction in a transient unit, which finishes it in any case: also when its process is killed.

    `command` is the one of host.pyz that carries it out.
    """
    library = [paths.PYTHON, "-I", paths.HOST_PYZ]
    unit = paths.transaction_unit(service)
    systemd.wait_gone(unit, MARGIN_SECONDS)  # the one before may have its verdict but not have ended
    systemd.run_transient(
        unit,
        [*library, command, "--service", service, "--transaction", str(number)],
        f"servewright transaction {number} of {service}",
        ExecStopPost=" ".join([*library, "recover", "--service", service]),
        TimeoutStopSec="infinity",
        OnFailure=f"servewright-recover@{service}.service",
    )


def transact(service, number):
    """Carry a transaction out, to its verdict."""
    journal = Journal.by_id(service, number)
    facts = journal.steps()[0]
    release = releases.load(service, facts["release"])
    try:
        journal.step("preflighted")
        started = facts["release"]
        if facts["restart"]:
            loaded = _replace(journal, release, facts["release"], facts["displaces"])
        else:
            pointer = releases.committed(service)
            started, loaded = pointer["started"], None
            _install(service, facts["release"])
        returning = facts["command"] == "rollback" or facts["release"] == facts["previous"]
        _verify(journal, release, facts["release"], returning)
        _commit(journal, release, facts["release"], started)
        _adopt(release, facts["release"], facts["restart"])
    except (StepError, HostError) as error:
        roll_back(journal, facts, error)
        return
    finish(journal, "committed", release=facts["release"], load_seconds=loaded)


def _replace(journal, release, number, displaces=()):
    """Stop what runs and start a release; gives the seconds it took to load."""
    service = release["service"]
    served = _served(journal)
    journal.step("stopping")
    stop(service, release["user"], served)
    for other in displaces:
        stop(other)
        systemd.disable(paths.unit_name(other))
    journal.step("waiting_gpus")
    with ThreadPoolExecutor(1) as beside:  # the service is down: systemd reads the unit while nvidia-smi answers
        installed = beside.submit(_install, service, number)
        if release["gpus"]:
            gpus.wait_free(release["gpus"], release["limits"]["gpu_wait"])
        installed.result()
    journal.step("starting", release=number)
    return _load(journal, release, number)


def _load(journal, release, number):
    """Start the unit in place and wait until it serves; gives the seconds it took to load.

    A start that failed is tried once more, if its cause is known to be one that can pass by itself.
    """
    try:
        return _start(journal, release, number)
    except StepError as error:
        if not error.cause or not error.cause["retry"]:
            raise
        stop(release["service"], release["user"], served=False)
        journal.step("starting", release=number, again=str(error))
        return _start(journal, release, number)


def _start(journal, release, number):
    unit = paths.unit_name(release["service"])
    proof.switch_on(release)
    try:
        systemd.start(unit, release["limits"]["start_timeout"] + MARGIN_SECONDS)
    finally:
        proof.switch_off(release["service"])  # systemd has read it: a crash or a boot starts without NCCL's log
    journal.step("loading", service=release["service"], release=number)
    try:
        return round(ready.wait(release, number), 3)
    except StepError as error:
        words = proof.explained(release, systemd.show(unit))
        raise StepError(f"{error}. {words}", error.diagnosis, cause=error.cause) if words else error from None


def _install(service, number):
    """Put the unit of a release in place and have systemd read it."""
    releases.activate(service, number)
    systemd.enable(paths.unit_name(service))
    systemd.daemon_reload()


def _served(journal):
    """False when what runs now was started by this transaction and has not become ready."""
    steps = [step["step"] for step in journal.steps() if step["step"] in ("starting", "verifying")]
    return steps[-1:] != ["starting"]


def stop(service, user="", served=True):
    """Stop a service, with all it left behind. Raises StepError with the processes that outlived SIGKILL.

    One that has not served has nothing to finish, and may not heed SIGTERM while it loads (vLLM 0.32.0 loses the
    first): it is not waited for. `user` is that of the service when its unit is gone, and says it no more.
    """
    unit = paths.unit_name(service)
    state = systemd.show(unit)
    if state["LoadState"] != "not-found":
        if not served:
            systemd.kill(unit, LOADING_GRACE_SECONDS)
        systemd.stop(unit, _stop_timeout(service) + MARGIN_SECONDS)
    left = leftovers.end(service, state["User"] or user)
    if left:
        raise StepError("processes outlived SIGKILL: {}".format("; ".join(map(describe, left))), survivors=left)


def _stop_timeout(service):
    """TimeoutStopSec of the unit that is loaded now, in seconds."""
    pointer = releases.committed(service)
    numbers = releases.numbers(service)
    limits = [
        releases.load(service, n)["limits"]["stop_timeout"]
        for n in {pointer["release"] if pointer else 0, *numbers[-1:]}
        if n in numbers
    ]
    return max(limits, default=90)


def _verify(journal, release, number, returning=True):
    journal.step("verifying", service=release["service"], release=number)
    results = gates.all_gates(release, number, returning=returning)
    journal.step("verified", service=release["service"], release=number, gates=results)
    failed = gates.first_failed(results)
    if failed:
        raise ready.failed(release, systemd.show(paths.unit_name(release["service"])), failed)
    baselines.keep(release, number, results)


def _commit(journal, release, number, started):
    """Make a verified release the committed one, and keep its answers to compare the next one with."""
    releases.commit(release["service"], number, started)
    verified = next((step["gates"] for step in reversed(journal.steps()) if step["step"] == "verified"), [])
    answers = [gate["evidence"].get("reference") for gate in verified if gate["id"] == "answers"]
    if any(answers):
        try:
            reference.keep(release, answers[0])
        except (HostError, OSError) as error:
            print(f"{journal.service}: its answers are not kept to compare with: {error}", flush=True)


def roll_back(journal, facts, error):
    """Go back to the release that was committed before, through the same gates."""
    service, previous = journal.service, facts["previous"]
    journal.going_back = True
    journal.step(
        "rolling_back", reason=str(error), log=getattr(error, "diagnosis", []), cause=getattr(error, "cause", None)
    )
    if getattr(error, "survivors", None):
        needs_reboot(journal, error)
        return
    try:
        if previous is None:
            _remove(service, _served(journal))
            bring_back(journal, facts["displaces"])
            message = "{} serves again".format(", ".join(facts["displaces"])) if facts["displaces"] else NOTHING
            finish(journal, "restored", release=None, message=message)
            return
        release = releases.load(service, previous)
        if _stopped(journal):
            loaded, started = _replace(journal, release, previous), previous
        else:
            loaded, started = None, releases.committed(service)["started"]
            _install(service, previous)
            ready.wait(release, previous)  # after a power failure it is the boot that started it, a moment ago
        _verify(journal, release, previous)
        _commit(journal, release, previous, started)
        _adopt(release, previous, loaded is not None)
        bring_back(journal, facts["displaces"])
        finish(journal, "restored", release=previous, load_seconds=loaded)
    except (StepError, HostError) as second:
        if getattr(second, "survivors", None):
            needs_reboot(journal, second)
            return
        finish(
            journal,
            "rollback_failed",
            message=str(second),
            log=getattr(second, "diagnosis", []),
            cause=getattr(second, "cause", None),
            next_steps=[
                f"look at what it said: journalctl -u {paths.unit_name(service)} -e",
                f"look at the state: systemctl status {paths.unit_name(service)}",
                f"mend the cause, then deploy again or roll back to a release in {paths.releases(service)}",
            ],
        )


def needs_reboot(journal, error):
    """Processes outlived SIGKILL: whatever is started on top of them would find no GPU memory."""
    finish(
        journal,
        "rollback_failed",
        message=f"{error}: the host needs a reboot; nothing was started",
        next_steps=[
            "reboot the host: the boot finishes this by going back to the committed release",
            "until then the GPUs and the port may be held by the processes named above",
        ],
    )


def _stopped(journal):
    """True when the old process is gone. If it is not, going back must not restart it: that would be an outage."""
    steps = {step["step"] for step in journal.steps()}
    return "stopping" in steps or not systemd.active(systemd.show(paths.unit_name(journal.service)))


def bring_back(journal, displaced):
    """Start the services again that were stopped for their GPUs, through their own gates."""
    for service in displaced:
        number = releases.committed(service)["release"]
        release = releases.load(service, number)
        _install(service, number)
        journal.step("starting", service=service, release=number)
        _load(journal, release, number)
        _verify(journal, release, number)
        releases.commit(service, number, number)


def _remove(service, served):
    """Take the unit of a first release that failed away again; its folder stays as evidence."""
    unit = paths.unit_name(service)
    stop(service, served=served)
    systemd.disable(unit)
    files.remove(paths.unit_file(service))
    systemd.daemon_reload()


def _adopt(release, number, restarted):
    """Do for a committed release what its verdict does not depend on: record what it was committed in, for drift to
    compare, and have it watched.
    """
    try:
        surroundings.record(release, number, restarted)
    except (HostError, OSError) as error:
        print(f"{release['service']}: drift will not know this host as it was: {error}", flush=True)
        files.remove(surroundings.path(release["service"]))
    try:
        timer.adopt(release)
    except (HostError, OSError) as error:
        print(f"{release['service']}: it may not be watched as declared: {error}", flush=True)


def finish(journal, step, **facts):
    """Write the verdict, say it in the host's log, and let old releases go."""
    proof.switch_off(journal.service)  # a transaction that was killed may have left it
    entry = journal.step(step, **facts)
    first = journal.steps()[0]
    what = "{} of release {} by {}".format(first["command"], first["release"], first["requester"])
    why = ": {}".format(entry["message"]) if entry.get("message") else ""
    print(f"{journal.service}: {what}: {step}{why}", flush=True)
    try:
        retention.prune(journal.service)
    except HostError as error:
        print(f"{journal.service}: old releases are kept: {error}", flush=True)


def finish_interrupted(services):
    """Have interrupted transactions finished before a new one begins. Raises BusyError until they are."""
    for service in services:
        last = latest(service)
        if last is not None and not last.finished():
            systemd.start_later(f"servewright-recover@{service}.service")
            raise BusyError(f"an interrupted transaction of {service} is being finished; try again when it is")


def recover(service):
    """Finish the latest transaction of a service if something ended it. Gives True when there was one."""
    journal = latest(service)
    if journal is None or journal.finished():
        return False
    steps = journal.steps()
    if not steps:  # the power failed before the first line was whole, so nothing had been done
        os.unlink(journal.path)
        return False
    if "measure" in steps[0]:
        from .measure import run

        run.recover(journal, steps[0])
        return True
    pointer = releases.committed(service)
    if (
        pointer is not None
        and pointer["release"] == steps[0]["release"]
        and any(step["step"] == "verified" and not gates.first_failed(step["gates"]) for step in steps)
    ):
        _adopt(releases.load(service, pointer["release"]), pointer["release"], steps[0]["restart"])
        finish(journal, "committed", release=pointer["release"])
        return True
    roll_back(journal, steps[0], HostError("the transaction was interrupted after '{}'".format(steps[-1]["step"])))
    return True


def recover_at_boot(service):
    """Before the services start: put the committed unit back, then verify it in a unit of its own."""
    journal = latest(service)
    if journal is None or journal.finished():
        return False
    steps = journal.steps()
    if steps and "measure" in steps[0]:
        return True  # it never changed a unit
    pointer = releases.committed(service)
    if pointer is None:
        systemd.disable(paths.unit_name(service))
        files.remove(paths.unit_file(service))
    else:
        releases.activate(service, pointer["release"])
    return True
