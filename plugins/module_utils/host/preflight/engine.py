"""The engine: its environment has what the command needs."""

from __future__ import annotations

import os


def engine(release):
    """The engine's environment has what the command needs."""
    found = []
    for word in release["argv"][:2]:
        if word.startswith("/") and not os.access(word, os.X_OK):
            found.append(
                (
                    f"{word} is missing or cannot be executed",
                    "put {} {} into {}, or declare its folder as 'venv'".format(
                        release["engine"], release["version"], release["venv"]
                    ),
                )
            )
            break
    return found
