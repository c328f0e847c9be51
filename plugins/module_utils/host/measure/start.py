"""Start to measure: check everything, then hand over to a transaction."""

from __future__ import annotations

import os
import pwd

from .. import files, gpus, library, lock, paths, releases, systemd, transaction, users
from ..journal import Journal
from . import job as jobs
from .check import refusal, unusable

START_SECONDS = 180  # what a run takes beyond what it measures: torch, CUDA, the last case


def start(release, request, program, stop, others, requester, reason, lock_wait):
    """Check everything, then begin; gives what changes in the result. Nothing is touched when it is refused."""
    service = release["service"]
    message = refusal(release, stop, others)
    if message:
        return {"verdict": "refused", "message": message}
    request = jobs.complete(release, request, gpus.query())
    found = unusable(release, request, program)
    if found:
        text = "{}: {}; {}".format(found["name"], found["detail"].strip(), found["to_do"])
        return {"verdict": "refused", "message": text}
    with lock.held({service, *others}, requester, reason, lock_wait) as notes:
        transaction.finish_interrupted([service])
        message = refusal(release, stop, others)  # it may have changed before the lock was held
        if message:
            return {"verdict": "refused", "message": message}
        library.install()
        users.ensure(release["user"])
        stops = [name for name in (service, *others) if systemd.active(systemd.show(paths.unit_name(name)))]
        origin = {"command": "nccl " + request["what"], "requester": requester, "reason": reason, "notes": notes}
        number = _begin(release, request, program, stops, **origin)
        return {"verdict": "running", "transaction": number}


def _begin(release, request, program, stops, **origin):
    """Write the journal and the job, and start the transaction; gives its number.

    `stops` are the services to stop, in the order they are started again. `origin`: command, requester, reason, notes.
    """
    service = release["service"]
    pointer = releases.committed(service)
    number = pointer["release"] if pointer else None
    new = Journal.new(service)
    folder = os.path.join(paths.state(service), "measured", jobs.kind_of_host(request), "%06d" % new.number)
    notes = list(origin.pop("notes"))
    if request["what"] == "tune":
        request["plugin"], note = jobs.plugin(program)
        notes += [note] if note else []
    files.make_folder(folder)
    jobs.write(folder, request, program)
    owner = pwd.getpwnam(release["user"])
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    job = {
        "stops": stops,
        "folder": folder,
        "gpus": release["gpus"],
        "gpu_wait": release["limits"]["gpu_wait"],
        "python": os.path.join(release["venv"], "bin/python"),
        "user": release["user"],
        "plugin": request["plugin"],
        "seconds": request["seconds"] + START_SECONDS,
        "environment": {
            name: value
            for name, value in release["environment"].items()
            if name in request["held"] or (name not in release["nccl"] and not name.startswith("NCCL_"))
        },
    }
    facts = {"release": number, "previous": number, "restart": bool(stops), "notes": notes}
    others = [name for name in stops if name != service]
    new.step("staged", displaces=others, measure=job, **facts, **origin)
    transaction.launch(service, new.number, "measure")
    return new.number
