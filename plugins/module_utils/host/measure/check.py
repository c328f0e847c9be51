"""Why nothing can be measured, found before anything is stopped."""

from __future__ import annotations

import json
import os
import pwd
import shutil

from .. import commands, gpus, paths, proc, systemd
from . import job

CHECK_SECONDS = 120  # import torch from a cold disk


def refusal(release, stop, others):
    """Why nothing can be measured, as text, or None. `others`: services that hold a claimed GPU."""
    service, claimed = release["service"], release["gpus"]
    if len(claimed) < 2:
        few = f"{service} claims {len(claimed)} GPU"
        return f"too-few-gpus: {few}: with one there is no NCCL traffic and nothing to measure"
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
        hold, them = ("holds", "it") if len(managed) == 1 else ("hold", "them")
        stop = f"--stop stops {them}, measures, and starts {them} again through the gates"
        return f"gpus-in-use: {', '.join(managed)} {hold} the GPUs; {stop}"
    return None


def unusable(release, request, program):
    """What the engine's environment or the model lacks, as a diagnosis {name, detail, to_do}, or None."""
    python = os.path.join(release["venv"], "bin/python")
    if not os.path.exists(python):
        return {"name": "torch-missing", "detail": f"{python} is missing", "to_do": "install the engine's environment"}
    folder = os.path.join(paths.RUN, "nccl-" + release["service"])
    try:
        job.write(folder, request, program)
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
