"""Reads the package's tables."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

# libyaml is several times faster than the pure reader, and not everywhere there.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Row(BaseModel):
    """A row of a table: an unknown key is an error. It is built at its first use, which most commands never have."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def load(name: str) -> Any:
    """The content of one table, by its path below this package."""
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=_Loader)


def compiled(name: str) -> Any:
    """The content of a JSON file that was made of tables."""
    return json.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def names(folder: str) -> list[str]:
    """The tables of a folder, in the order of their names."""
    entries = resources.files(__package__).joinpath(folder).iterdir()
    return sorted(f"{folder}/{entry.name}" for entry in entries if entry.name.endswith(".yml"))
