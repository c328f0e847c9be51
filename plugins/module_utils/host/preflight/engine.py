"""The engine: its environment has what the command needs."""

from __future__ import annotations

import os

from .. import users
from .check import fatal


def engine(subject):
    """The engine's environment has what the command needs, and the service's user can run it."""
    release = subject.release
    programs = [word for word in release["argv"][:2] if word.startswith("/")]
    for program in programs:
        if not os.access(program, os.X_OK):
            repair = "put {engine} {version} into {venv}, or declare its folder as 'venv'".format(**release)
            return [fatal(f"{program} is missing or cannot be executed", repair)]
    for program in users.unexecutable(release["user"], programs):
        place = os.path.realpath(program)  # an interpreter that root's tools fetched is below /root
        message = "user {} cannot run {}{}".format(release["user"], program, "" if place == program else f" ({place})")
        return [fatal(message, "let everybody enter the folders above it, or make it anew with another interpreter")]
    return []
