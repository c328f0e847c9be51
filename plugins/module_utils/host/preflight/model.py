"""The model: its files are there and can be read."""

from __future__ import annotations

import os

from .. import users
from .check import fatal


def model(subject):
    """The model's folder is there, with a config.json that the service's user can read."""
    path, user = subject.release["model"]["path"], subject.release["user"]
    config = os.path.join(path, "config.json")
    if not os.path.isdir(path):
        return [fatal(f"there is no model folder {path}", "declare the right model.path, or put the model there")]
    if not os.path.isfile(config):
        return [fatal(f"{path} has no config.json, so it is not a model", "declare the folder that holds config.json")]
    if not users.can_read(user, config):
        return [
            fatal(
                f"user {user} cannot read {config}",
                "let everybody enter the folders above it and read it (chmod o+rX)",
            )
        ]
    return []
