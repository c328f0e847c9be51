"""Measuring NCCL on this host: with the service's engine, user and GPUs, as a transaction that gives the GPUs back.

    staged -> [stopping -> waiting_gpus] -> measuring -> [starting -> loading -> verifying] -> measured | not_measured
                                                                                            | restored | rollback_failed

`measured`: there is a result. `not_measured`: there is none, and nothing had been stopped. `restored`: there is none,
and what had been stopped serves again. What was stopped is started again through its gates in any case: when the
probe hangs, when this process is killed, and when the power fails.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import pwd
import re
import shutil
import time
import zipfile

from . import commands, files, gpus, lock, paths, proc, releases, systemd, topology, transaction
from .errors import HostError, StepError
from .journal import Journal

OUTCOME = "outcome.json"
PHASES = ("ablation", "sweep", "finals", "verify", "bench")
CHECK_SECONDS = 120  # import torch from a cold disk
START_SECONDS = 180  # what a run takes beyond what it measures: torch, CUDA, the last case
PLUGINS = "/usr/local/lib/servewright"
_COMPILERS = ("cc", "gcc", "clang")


def unit(service):
    """The transient unit that the probe runs in; all of it ends with the unit."""
    return f"servewright-nccl-{service}.service"


def refusal(release, request, stop, others):
    """Why nothing can be measured, as text, or None. `others`: services that hold a claimed GPU."""
    service, claimed = release["service"], release["gpus"]
    if len(claimed) < 2:
        return "too-few-gpus: %s claims %d GPU: with one there is no NCCL traffic and nothing to measure" % (
            service,
            len(claimed),
        )
    known = gpus.query()
    held = gpus.busy(claimed)
    if set(claimed) - set(known):
        return "; ".join(held)
    managed = [name for name in (service, *others) if systemd.active(systemd.show(paths.unit_name(name)))]
    ours = {pid for name in managed for pid in systemd.pids(systemd.show(paths.unit_name(name))["ControlGroup"])}
    uuids = {known[index]["uuid"] for index in claimed}
    foreign = sorted({pid for pid, uuid, _used in gpus.clients() if uuid in uuids and pid not in ours})
    if foreign or (held and not managed):
        named = "; ".join(map(proc.describe, foreign)) or "; ".join(held)
        return f"gpus-in-use: not by a service of servewright: {named}; end it first"
    if managed and not stop:
        return "gpus-in-use: {} {} the GPUs; --stop stops {}, measures, and starts {} again through the gates".format(
            ", ".join(managed),
            "holds" if len(managed) == 1 else "hold",
            *(["it"] * 2 if len(managed) == 1 else ["them"] * 2),
        )
    return None


def unusable(release, request, program):
    """What the engine's environment or the model lacks, as a diagnosis {name, detail, to_do}, or None."""
    python = os.path.join(release["venv"], "bin/python")
    if not os.path.exists(python):
        return {"name": "torch-missing", "detail": f"{python} is missing", "to_do": "install the engine's environment"}
    folder = os.path.join(paths.RUN, "nccl-" + release["service"])
    try:
        _write_job(folder, request, program)
        done = commands.run_as(
            _user(release["user"]),
            [python, f"{folder}/measure.pyz", "--check", f"{folder}/request.json"],
            {"HOME": "/tmp"},
            CHECK_SECONDS,
            f"servewright-nccl-check-{release['service']}.service",
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        said = "it took more than %d s" % CHECK_SECONDS if done.timed_out else (done.stderr.strip() or "no answer")
        return {
            "name": "torch-missing",
            "detail": said[-2000:],
            "to_do": "run this environment's python and import torch",
        }


def _user(name):
    """The service's user, who is made only when something is measured."""
    try:
        return pwd.getpwnam(name).pw_name
    except KeyError:
        return "nobody"


def complete(release, request, facts):
    """The request with what only the host knows. `facts` are those of gpus.query()."""
    ranks = release["parallelism"]["tensor"] * release["parallelism"].get("pipeline", 1)
    return dict(
        request,
        ranks=min(len(release["gpus"]), ranks) if ranks > 1 else len(release["gpus"]),
        topology=interconnect(release["gpus"]),
        config=os.path.join(release["model"]["path"], "config.json"),
        plugin=None,
        models=sorted({facts[index]["name"] for index in release["gpus"] if index in facts}),
    )


def interconnect(indices):
    """nvlink when nvidia-smi shows it between all the given GPUs, else pcie."""
    links = topology.pairs(topology.matrix(gpus.topology("-m")), indices).values()
    every = links and len(links) == len(indices) * (len(indices) - 1) // 2
    return "nvlink" if every and all(word.startswith("NV") for word in links) else "pcie"


def kind_of_host(request):
    """Name of the folder that results of this kind of host are kept in: 2x-nvidia-h200-nvlink."""
    models = "-".join(request["models"]) or "gpu"
    return re.sub(r"[^a-z0-9]+", "-", "{}x {} {}".format(request["ranks"], models, request["topology"]).lower())


def begin(release, request, program, stops, **origin):
    """Write the journal and the job, and start the transaction; gives its number.

    `stops` are the services to stop, in the order they are started again. `origin`: command, requester, reason, notes.
    """
    service = release["service"]
    pointer = releases.committed(service)
    number = pointer["release"] if pointer else None
    new = Journal.new(service)
    folder = os.path.join(paths.state(service), "measured", kind_of_host(request), "%06d" % new.number)
    notes = list(origin.pop("notes"))
    if request["what"] == "tune":
        request["plugin"], note = plugin(program)
        notes += [note] if note else []
    files.make_folder(folder)
    _write_job(folder, request, program)
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
            if name not in release["nccl"] and not name.startswith("NCCL_")
        },
    }
    facts = {"release": number, "previous": number, "restart": bool(stops), "notes": notes}
    others = [name for name in stops if name != service]
    new.step("staged", displaces=others, measure=job, **facts, **origin)
    transaction.launch(service, new.number, "measure")
    return new.number


def _write_job(folder, request, program):
    files.make_folder(folder)
    files.write(os.path.join(folder, "measure.pyz"), base64.b64decode(program))
    files.write(os.path.join(folder, "request.json"), json.dumps(request, sort_keys=True))


def plugin(program):
    """Build the tuner plugin; gives its path, or None and why not. Named by its source, so it is never replaced."""
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(program))) as archive:
        source = archive.read("measure/tuner_plugin.c")
    target = f"{PLUGINS}/libservewright-tuner-{hashlib.sha256(source).hexdigest()[:12]}.so"
    if os.path.exists(target):
        return target, None
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return None, "no C compiler is here, so no tuner plugin: the best single environment is chosen by weight"
    part = target + ".part"
    command = [compiler, "-O2", "-shared", "-fPIC", "-x", "c", "-o", part, "-"]
    try:
        commands.run(command, text=source.decode())
    except HostError as error:
        return None, f"the tuner plugin was not built, so the best single environment is chosen by weight: {error}"
    os.chmod(part, 0o755)
    os.rename(part, target)
    return target, None


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


def start(release, request, program, stop, others, requester, reason, lock_wait):
    """Check everything, then begin; gives what changes in the result. Nothing is touched when it is refused."""
    service = release["service"]
    message = refusal(release, request, stop, others)
    if message:
        return {"verdict": "refused", "message": message}
    request = complete(release, request, gpus.query())
    found = unusable(release, request, program)
    if found:
        text = "{}: {}; {}".format(found["name"], found["detail"].strip(), found["to_do"])
        return {"verdict": "refused", "message": text}
    with lock.held({service, *others}, requester, reason, lock_wait) as notes:
        from . import library, users

        transaction.finish_interrupted([service])
        message = refusal(release, request, stop, others)  # it may have changed before the lock was held
        if message:
            return {"verdict": "refused", "message": message}
        library.install()
        users.ensure(release["user"])
        stops = [name for name in (service, *others) if systemd.active(systemd.show(paths.unit_name(name)))]
        origin = {"command": "nccl " + request["what"], "requester": requester, "reason": reason, "notes": notes}
        number = begin(release, request, program, stops, **origin)
        return {"verdict": "running", "transaction": number}
