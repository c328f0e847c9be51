"""How these commands end: the exit code, and an error as one line instead of a traceback."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from servewright.cli.options import Invocation
from servewright.report.exit_code import ERROR, REFUSED


def ending(function: Callable[..., int]) -> Callable[..., None]:
    """Make a command of a function that takes a typer.Context first and returns its exit code."""

    @functools.wraps(function)
    def command(context: typer.Context, **values: Any) -> None:
        invocation: Invocation = context.obj
        try:
            invocation.code = function(context, **values)
        except (OSError, ValueError) as error:
            problems = [problem.as_dict() for problem in getattr(error, "problems", ())]  # of InvalidError
            invocation.code = REFUSED if hasattr(error, "problems") else ERROR
            if values.get("json"):
                message = "" if problems else "\n".join(_lines(error))
                document({"version": 1, "exit_code": invocation.code, "error": message, "problems": problems})
                return
            for line in _lines(error):
                print(f"error: {line}", file=sys.stderr)

    return command


def _lines(error: Exception) -> list[str]:
    if hasattr(error, "problems"):  # InvalidError
        return [place(str(problem)) for problem in error.problems]
    if isinstance(error, OSError) and error.filename is not None:
        return [f"cannot read {error.filename}: {error.strerror}"]
    return str(error).splitlines() or [type(error).__name__]


def place(path: str) -> str:
    """A path as short as it is from here: relative to the working directory when it lies below."""
    return path.removeprefix(f"{Path.cwd()}{os.sep}")


def document(content: Any) -> None:
    """Print a JSON document."""
    print(json.dumps(content, indent=2))
