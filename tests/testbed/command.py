"""Run a command of the machine the tests run on."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from tests.testbed.errors import CommandFailed, TestbedError


def execute(
    argv: Sequence[str],
    *,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> str:
    """Run argv and return what it printed.

    Raises CommandFailed, or TestbedError when there is no such command.
    """
    try:
        result = subprocess.run(
            argv,
            input=stdin,
            env=env,
            pass_fds=pass_fds,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise TestbedError(f"command not found: {argv[0]}") from error
    if result.returncode != 0:
        raise CommandFailed("this machine", result)
    return result.stdout
