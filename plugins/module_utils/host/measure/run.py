"""The transaction of a measurement: stop what holds the GPUs, run the probe, and start it again."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import time

from .. import commands, files, gpus, paths, systemd, transaction
from ..errors import HostError, StepError
from ..journal import Journal

OUTCOME = "outcome.json"
PHASES = ("ablation", "sweep", "finals", "verify", "bench")


def unit(service):
    """The transient unit that the probe runs in; all of it ends with the unit."""
    return f"servewright-nccl-{service}.service"


def carry_out(service, number):
    """Stop, measure and start again, to a verdict."""
    journal = Journal.by_id(service, number)
    facts = journal.steps()[0]
    job = facts["measure"]
    try:
        if job["stops"]:
            journal.step("stopping")
            for name in job["stops"]:
                transaction.stop(name)
            journal.step("waiting_gpus")
        gpus.wait_free(job["gpus"], job["gpu_wait"] if job["stops"] else 0)
        journal.step("measuring", unit=unit(service))
        said = _measure(service, job)
    except (StepError, HostError) as error:
        if getattr(error, "survivors", None):
            transaction.needs_reboot(journal, error)
            return
        said = str(error)
    finish(journal, facts, said)


def _measure(service, job):
    """Run the probe to its end; gives why there is no result, or None."""
    name, folder = unit(service), job["folder"]
    settings = dict(
        commands.SANDBOX,
        Nice="0",
        User=job["user"],
        RuntimeMaxSec=job["seconds"],
        WorkingDirectory="/",
        ReadWritePaths=folder,
        LimitMEMLOCK="infinity",
        SyslogIdentifier="servewright-nccl",
    )
    command = ["systemd-run", "--quiet", "--collect", "--wait", "--unit", name]
    command += [word for key, value in settings.items() for word in ("-p", f"{key}={value}")]
    environment = dict(job["environment"], HOME=folder, PYTHONDONTWRITEBYTECODE="1")
    command += [f"--setenv={key}={value}" for key, value in sorted(environment.items())]
    command += ["--", job["python"], f"{folder}/measure.pyz", f"{folder}/request.json", folder]
    begin = time.monotonic()
    commands.run(command, timeout=job["seconds"] + transaction.MARGIN_SECONDS, check=False)
    os.chown(folder, 0, 0)  # what is read from here on was there when the last process of the user had ended
    outcome = _json(os.path.join(folder, OUTCOME))
    if outcome is None:
        took = time.monotonic() - begin
        if took >= job["seconds"]:
            return "hang: the probe was ended after {:g} s, its limit; {}".format(job["seconds"], _last_words(service))
        return f"probe-ended: the probe ended without a result; {_last_words(service)}"
    found = outcome.get("diagnosis")
    if found:
        return "{}: {}; {}".format(found["name"], found["detail"].strip().splitlines()[0][:400], found["to_do"])
    if outcome.get("table"):
        _install_table(service, folder, outcome["table"])
    return None


def _last_words(service):
    return "its last words: " + (" / ".join(systemd.log(unit(service), 3)) or "none")


def _install_table(service, folder, text):
    """Beside the record, under a name made of its content: a service that uses an older table keeps it."""
    name = f"tuned-{hashlib.sha256(text.encode()).hexdigest()[:12]}.csv"
    target = os.path.join(paths.state(service), "measured", name)
    files.write(target, text)
    files.write(os.path.join(folder, "table"), target)


def finish(journal, facts, said):
    """Start again what was stopped, through its gates, and write the verdict. `said`: why there is no result."""
    job = facts["measure"]
    stopped = any(step["step"] == "stopping" for step in journal.steps())
    journal.going_back = True
    begin = time.monotonic()
    try:
        transaction.bring_back(journal, job["stops"] if stopped else [])
    except (StepError, HostError) as error:
        transaction.finish(
            journal,
            "rollback_failed",
            message="{}{}".format(said + "; then " if said else "", error),
            log=getattr(error, "diagnosis", []),
            next_steps=[
                "look at what it said: journalctl -u {} -e".format(paths.unit_name(job["stops"][0])),
                "mend the cause, then deploy",
            ],
        )
        return
    again = ""
    if stopped:
        again = "{} serve{} again, {:.0f} s after the measurement".format(
            ", ".join(job["stops"]), "" if len(job["stops"]) > 1 else "s", time.monotonic() - begin
        )
    step = ("restored" if stopped else "not_measured") if said else "measured"
    warnings = (_json(os.path.join(job["folder"], OUTCOME)) or {}).get("warnings", [])
    found = ["{}: {}".format(warning["name"], warning["detail"]) for warning in warnings]
    message = "; ".join(part for part in (said, again, *facts["notes"], *found) if part)
    transaction.finish(journal, step, release=facts["release"], message=message)


def recover(journal, facts):
    """Finish a measurement that something ended."""
    service = journal.service
    systemd.stop(unit(service), transaction.MARGIN_SECONDS)
    last = journal.steps()[-1]["step"]
    finish(journal, facts, f"interrupted: the measurement was ended after '{last}'")


def kept(job):
    """What a finished measurement left: outcome, records (gzip, base64, by phase) and where things are."""
    folder = job["folder"]
    records = {}
    for phase in PHASES:
        text = _read(os.path.join(folder, phase + ".json"))
        if text is not None:
            records[phase] = base64.b64encode(gzip.compress(text, mtime=0)).decode()
    table = files.read_bytes(os.path.join(folder, "table"))
    return {
        "outcome": _json(os.path.join(folder, OUTCOME)) or {},
        "records": records,
        "folder": folder,
        "table": table.decode() if table else None,
        "plugin": job["plugin"],
        "topology": os.path.basename(os.path.dirname(folder)),
    }


def _json(path):
    try:
        return json.loads(_read(path) or b"")
    except ValueError:
        return None


def _read(path):
    """Content of a file that the service's user wrote, or None. A link could lead to what only root may read."""
    return None if os.path.islink(path) else files.read_bytes(path)
