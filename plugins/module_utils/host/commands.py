"""Running other programs: always an argument list, always a bound on time."""

from __future__ import annotations

import subprocess
import time

from .errors import HostError

SANDBOX = {
    # That of the services' own units, so that what works here works there.
    "NoNewPrivileges": "yes",
    "PrivateTmp": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "read-only",
    "UMask": "0077",
    # It runs beside a service that serves.
    "Nice": "10",
}
_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "SYSTEMD_PAGER": "",
    "SYSTEMD_COLORS": "0",
}


def run(argv, timeout=60, check=True, text=None, **options):
    """Run a program and give its CompletedProcess with text output. `text` goes to its standard input.

    Raises HostError when it cannot be started, takes longer than `timeout` seconds or, with `check`, fails.
    """
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **({"stdin": subprocess.DEVNULL} if text is None else {"input": text}),
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            env=_ENVIRONMENT,
            check=False,
            **options,
        )
    except FileNotFoundError:
        raise HostError(f"{argv[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise HostError("'{}' did not end within {} s".format(" ".join(argv), timeout)) from None
    if check and done.returncode != 0:
        raise HostError(
            "'%s' failed (%d): %s" % (" ".join(argv), done.returncode, (done.stderr or done.stdout).strip())
        )
    return done


def run_as(user, argv, environment, timeout, name, text="", **properties):
    """Run a program as a user, in a transient unit `name` with the sandbox of a service, all its processes ended by
    `timeout` seconds. Gives its CompletedProcess, with `timed_out`.

    The unit gets no words of `argv` from outside: systemd would expand `$` and `%` in them. They go in by `text`.
    """
    settings = dict(SANDBOX, User=user, RuntimeMaxSec=timeout, WorkingDirectory="/", **properties)
    command = ["systemd-run", "--quiet", "--collect", "--wait", "--pipe", "--unit", name]
    command += [word for key, value in settings.items() for word in ("-p", f"{key}={value}")]
    command += [f"--setenv={key}={value}" for key, value in environment.items()]
    begin = time.monotonic()
    done = run([*command, "--", *argv], timeout=timeout + 30, check=False, text=text)
    done.timed_out = done.returncode != 0 and time.monotonic() - begin >= timeout
    return done
