"""What can go wrong, said in a way that tells the reader what to do."""

from __future__ import annotations

import subprocess


class TestbedError(Exception):
    """The test hosts cannot be had, or one of them is not as it should be; the message is for the user."""

    __test__ = False  # the name starts with Test, and pytest would try to collect it


class HostDegraded(TestbedError):
    """The host has booted, and is up, but some of its units failed."""


class CommandFailed(TestbedError):
    """A command ended with an exit status other than 0; `result` has its output."""

    def __init__(self, where: str, result: subprocess.CompletedProcess[str]) -> None:
        command = result.args if isinstance(result.args, str) else " ".join(map(str, result.args))
        output = "\n".join(text.strip() for text in (result.stdout, result.stderr) if text and text.strip())
        super().__init__(f"{where}: `{command}` ended with {result.returncode}" + (f":\n{output}" if output else ""))
        self.result = result
