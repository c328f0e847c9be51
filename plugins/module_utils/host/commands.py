"""Running other programs: always an argument list, always a bound on time."""

from __future__ import annotations

import subprocess

from .errors import HostError

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "SYSTEMD_PAGER": "",
    "SYSTEMD_COLORS": "0",
}


def run(argv, timeout=60, check=True, **options):
    """Run a program and give its CompletedProcess with text output.

    Raises HostError when it cannot be started, takes longer than `timeout` seconds or, with `check`, fails.
    """
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
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
