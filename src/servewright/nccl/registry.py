"""The table of variables: what each means, accepts and affects, by NCCL version.

The knowledge is in variables/*.yml; `make generate` writes variables.json of it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from . import data, version
from .version import Version

LATEST: Version = (2, 32, 3)
"""The newest NCCL whose variables are in the table."""
OLDEST: Version = (2, 18, 1)
"""The oldest NCCL whose variables are in the table."""
GUIDE: Version = (2, 30, 7)
"""The version of the guide and the source that the table cites; an unknown version is judged as this one."""

Type = Literal["boolean", "integer", "size", "word", "words", "level", "selection", "string", "path"]
Topic = Literal[
    "algorithm", "protocol", "ll", "ll128", "simple", "channels", "p2p", "shm", "nvls", "net", "ib", "socket",
    "bootstrap", "memory", "registration", "graph", "launch", "topology", "settings", "library", "log",
]  # fmt: skip


class Change(data.Row):
    """What differs from a version on. Only the fields given here change."""

    since: Version
    type: Type | None = None
    values: tuple[str, ...] | None = None
    unknown: Literal["ignored", "default"] | None = None
    maximum: int | None = None
    default: str | None = None


class Variable(data.Row):
    """One environment variable.

    values are the accepted words or numbers; `also` are accepted words the guide does not name, with the
    version that brought them; `integers` is an old numbering. unknown: what NCCL does with any other word.
    minimum, maximum and multiple_of bound a number; below, above and off_grid say what NCCL does outside: use
    the bound, ignore the setting, or (None) use the number unchecked.
    """

    name: str
    component: Literal["nccl", "pytorch", "sglang", "vllm", "cuda"] = "nccl"
    section: Literal["system", "debugging", "undocumented", "engine"]
    documented: bool
    meaning: str
    type: Type
    acts_on: tuple[Topic, ...]
    topology: Literal["any", "nvlink", "network"] = "any"
    """Where it can have an effect: between NVLink GPUs, between hosts, or anywhere."""
    values: tuple[str, ...] = ()
    also: dict[str, str] = {}
    integers: dict[str, str] = {}
    case_sensitive: bool = False
    separator: str = ","
    invert: bool = False
    unknown: Literal["ignored", "default"] | None = None
    unknown_effect: str = ""
    minimum: int | None = None
    maximum: int | None = None
    multiple_of: int | None = None
    below: Literal["minimum", "ignored"] | None = None
    above: Literal["maximum"] | None = None
    off_grid: Literal["maximum"] | None = None
    default: str | None = None
    since: Version | None = None
    deprecated_since: Version | None = None
    removed: Version | None = None
    replaced_by: str | None = None
    code: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """Where this was read: the guide, source files, or the library's own strings."""
        tag = version.render(GUIDE)
        guide = (
            (f"NCCL {tag} user guide, {self.name}",) if self.documented and self.component == "nccl" else ()
        )
        where = f"NCCL {tag} " if self.component == "nccl" else ""
        code = tuple(f"{where}{place}" for place in self.code)
        if not guide and not code:
            if self.component == "pytorch":
                return ("PyTorch torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp",)
            return ("CUDA C++ programming guide",) if self.component == "cuda" else ("strings of libnccl.so",)
        return guide + code

    def at(self, nccl: Version) -> Variable:
        """This variable as that NCCL version has it."""
        update: dict[str, Any] = {}
        for change in self.changes:
            if change.since <= nccl:
                update |= change.model_dump(exclude={"since"}, exclude_none=True)
        return self.model_copy(update=update)

    def words(self, nccl: Version) -> tuple[str, ...]:
        """Every word that version accepts, documented ones first."""
        return self.values + tuple(word for word, since in self.also.items() if version.parse(since) <= nccl)


class Override(data.Row):
    """What an engine does to a variable of its own accord; value None means it removes the variable."""

    engine: Literal["sglang", "vllm"]
    variable: str
    when: str
    value: str | None
    source: str
    since: str | None = None
    until: str | None = None


class _Variables(Mapping[str, Variable]):
    """The table by name. An entry is validated when it is asked for: a command looks at a few of hundreds."""

    def __init__(self, rows: dict[str, dict[str, Any]]) -> None:
        self._rows = rows
        self._valid: dict[str, Variable] = {}

    def __getitem__(self, name: str) -> Variable:
        if name not in self._valid:
            self._valid[name] = Variable.model_validate(self._rows[name])
        return self._valid[name]

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class _Table(NamedTuple):
    variables: _Variables
    overrides: tuple[Override, ...]
    foreign: tuple[str, ...]


@lru_cache(maxsize=1)
def _table() -> _Table:
    page = data.compiled("variables.json")
    overrides = tuple(Override.model_validate(row) for row in page["overrides"])
    return _Table(_Variables(page["variables"]), overrides, tuple(page["foreign"]))


def compiled() -> str:
    """The pages of variables/ as one JSON document, a line for each entry.

    Commands read this one, because reading YAML takes them far longer. Raises ValueError for a name that stands twice.
    """
    rows: dict[str, dict[str, Any]] = {}
    overrides: list[dict[str, Any]] = []
    foreign: list[str] = []
    for name in data.names("variables"):
        page = data.load(name)
        for row in page["variables"]:
            if row["name"] in rows:
                raise ValueError(f"{name}: {row['name']} is declared twice")
            rows[row["name"]] = {**page["defaults"], **row}
        overrides += page.get("overrides", ())
        foreign += page.get("foreign", ())
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    rest = ",\n".join(json.dumps(row) for row in overrides)
    return f'{{"variables": {{\n{lines}\n}},\n"overrides": [\n{rest}\n],\n"foreign": {json.dumps(foreign)}}}\n'


def variables() -> Mapping[str, Variable]:
    return _table().variables


def overrides() -> tuple[Override, ...]:
    return _table().overrides


def concerns(name: str) -> bool:
    """Whether a name is in the table or looks as if it were meant for NCCL."""
    return name in variables() or name.strip().removeprefix("export ").startswith("NCCL_")


def foreign(name: str) -> bool:
    """Whether a name belongs to a plugin or tool outside the library."""
    return name.startswith(_table().foreign)


def nearest(name: str) -> str | None:
    """The known name that a misspelt one most likely stands for, None when nothing is close."""
    stems = {known.removeprefix("NCCL_"): known for known in variables()}
    close = difflib.get_close_matches(name.strip().upper().removeprefix("NCCL_"), stems, n=1, cutoff=0.7)
    return stems[close[0]] if close else None
