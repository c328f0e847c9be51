"""The engine: its environment has what the command needs."""

from __future__ import annotations

import os

from .check import fatal


def engine(subject):
    """The engine's environment has what the command needs."""
    release = subject.release
    for word in release["argv"][:2]:
        if word.startswith("/") and not os.access(word, os.X_OK):
            return [
                fatal(
                    f"{word} is missing or cannot be executed",
                    "put {} {} into {}, or declare its folder as 'venv'".format(
                        release["engine"], release["version"], release["venv"]
                    ),
                )
            ]
    return []
