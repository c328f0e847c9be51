"""Running a script of ours in an engine's environment as the service would run: user, sandbox, variables, no GPU."""

from __future__ import annotations

import contextlib
import json
import os
import pwd

from .. import commands

_LOAD = "import json, sys; job = json.load(sys.stdin); exec(compile(job.pop('code'), 'servewright', 'exec'))"
# Hides the GPUs: a service that runs on them must not find a second context in their memory.
_NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def ask(release, code, job, timeout):
    """Run Python code that reads `job` and prints one line of JSON; gives that, or {"failure", "log"}.

    Every process is ended by `timeout` seconds. Secrets are not passed on.
    """
    user, environment, sandbox = user_of(release), dict(release["environment"]), {}
    if os.path.isdir(release["cache"]) and user == release["user"]:
        sandbox["ReadWritePaths"] = release["cache"]
    else:  # the first start makes it; until then there is no cache to keep
        environment = {
            name: "/tmp" + value[len(release["cache"]) :] if value.startswith(release["cache"]) else value
            for name, value in environment.items()
        }
    if release["gpus"]:
        environment.update(_NO_GPU)
    done = commands.run_as(
        user,
        [release["argv"][0], "-c", _LOAD],
        environment,
        timeout,
        name="servewright-preflight-{}-{}".format(release["service"], os.getpid()),
        text=json.dumps({"code": code, **job}),
        **sandbox,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if lines:
        with contextlib.suppress(ValueError):
            return json.loads(lines[-1])
    log = done.stderr.strip().splitlines()
    if done.timed_out:
        return {"failure": f"it did not answer within {timeout} s", "log": log[-20:]}
    return {"failure": log[-1] if log else f"it ended with {done.returncode}", "log": log[-20:]}


def user_of(release):
    """The service's user; until the first deploy makes it, one that can do what anybody can."""
    try:
        return pwd.getpwnam(release["user"]).pw_name
    except KeyError:
        return "nobody"


def packages(venv):
    """The folder of an environment's packages."""
    lib = os.path.join(venv, "lib")
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(lib)):
            if name.startswith("python"):
                return os.path.join(lib, name, "site-packages")
    return lib
