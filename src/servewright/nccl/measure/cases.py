"""What the probe is asked to measure: environments side by side, without each variable, and swept."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Environment = Mapping[str, str]
Topology = Literal["pcie", "nvlink"]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
PROTOCOLS = ("LL", "LL128", "Simple")
# Of the algorithms that work inside one host. NVLS needs NVSwitch and multicast.
_ALGORITHMS = {
    "pcie": {"all_reduce": ("Ring", "Tree"), "all_gather": ("Ring",), "reduce_scatter": ("Ring",)},
    "nvlink": {
        "all_reduce": ("Ring", "Tree", "NVLS"),
        "all_gather": ("Ring", "NVLS"),
        "reduce_scatter": ("Ring", "NVLS"),
    },
}
CHANNELS = (1, 2, 4, 8, 16, 32)
PLUGIN = "NCCL_TUNER_PLUGIN"
TABLE = "NCCL_TUNER_CONFIG_FILE"
WORDS = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter"}
"""A collective's name in a tuner table."""
ENDLESS = 2**63 - 1
NOTHING = "nothing set"
"""The name of the case without any variable."""


@dataclass(frozen=True)
class Trial:
    """A tuner table, and the sizes at which it is measured."""

    table: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One start of a process group. files: variables whose value is to be the path of a file with this text.

    trials: tables measured in turn on this start's one communicator, by the name they get in the result. prune: a
    trial that is slower than the best of its size by more than this factor is timed once and left. sizes,
    collectives and repeats: the job's when None.
    """

    name: str
    environment: Environment = field(default_factory=dict)
    files: Environment = field(default_factory=dict)
    round: int = 1
    collectives: tuple[str, ...] | None = None
    sizes: tuple[int, ...] | None = None
    repeats: int | None = None
    trials: Mapping[str, Trial] = field(default_factory=dict)
    prune: float | None = None

    def as_job(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "name": self.name,
            "environment": dict(self.environment),
            "files": dict(self.files),
            "round": self.round,
        }
        if self.collectives is not None:
            row["collectives"] = list(self.collectives)
        if self.sizes is not None:
            row["sizes"] = list(self.sizes)
        if self.repeats is not None:
            row["repeats"] = self.repeats
        if self.trials:
            row["settings"] = {
                name: {"table": trial.table, "sizes": list(trial.sizes)} for name, trial in self.trials.items()
            }
            row["prune"] = self.prune
        return row


@dataclass(frozen=True)
class Setting:
    """What a tuner chooses for a message. channels None leaves their number to NCCL."""

    algorithm: str
    protocol: str
    channels: int | None = None

    def __str__(self) -> str:
        return f"{self.algorithm}/{self.protocol}" + (f"/{self.channels}" if self.channels else "")

    @classmethod
    def read(cls, text: str) -> Setting:
        """The reverse of str(). Raises ValueError."""
        parts = text.split("/")
        if len(parts) not in (2, 3) or not all(parts):
            raise ValueError(f"{text!r} is not algorithm/protocol or algorithm/protocol/channels")
        return cls(parts[0], parts[1], int(parts[2]) if len(parts) == 3 else None)


def rounds(cases: Sequence[Case], count: int) -> list[Case]:
    """Every case once per round, in an order that spreads the host's drift over all of them.

    Rounds come in pairs, the second backwards, which cancels a steady drift. Each further pair is shuffled, always
    in the same way, because what is measured in the middle stays in the middle when the order is only turned round.
    """
    ordered: list[Case] = []
    for number in range(1, count + 1):
        pair, backwards = divmod(number - 1, 2)
        order = random.Random(pair).sample(cases, len(cases)) if pair else list(cases)
        if backwards:
            order.reverse()
        ordered += [replace(case, round=number) for case in order]
    return ordered


def bench(profiles: Mapping[str, Environment]) -> list[Case]:
    """Named environments side by side."""
    return [Case(name, environment) for name, environment in profiles.items()]


def ablation(name: str, environment: Environment) -> list[Case]:
    """A profile, nothing, and for each variable the profile without it and it alone.

    Without it shows what it does among the others; alone shows what one of the others may hide.
    """
    found = [Case(name, environment), Case(NOTHING)]
    for variable in environment:
        rest = {key: value for key, value in environment.items() if key != variable}
        found += [
            Case(without(name, variable), rest),
            Case(only(variable), {variable: environment[variable]}),
        ]
    return found


def without(name: str, variable: str) -> str:
    return f"{name} without {variable}"


def only(variable: str) -> str:
    return f"only {variable}"


def settings(
    collective: str,
    topology: Topology,
    channels: Sequence[int | None] = (None, *CHANNELS),
    *,
    ll128: bool = False,
    nvls: bool = True,
) -> list[Setting]:
    """All combinations that NCCL can run inside one host of this topology.

    ll128: also on PCIe, where NCCL keeps it off because not every path keeps 128-byte stores together; data can be
    wrong without an error. nvls false: multicast is switched off or absent.
    """
    found: list[Setting] = []
    for algorithm in _ALGORITHMS[topology][collective]:
        if algorithm == "NVLS" and not nvls:
            continue
        for protocol in PROTOCOLS:
            if (algorithm == "NVLS" and protocol != "Simple") or (
                protocol == "LL128" and topology == "pcie" and not ll128
            ):
                continue
            found += [Setting(algorithm, protocol, count) for count in channels]
    return found


def row(collective: str, low: int, high: int, setting: Setting, ranks: int) -> str:
    """One line of a tuner table in the format of NCCL's example plugin (2.27.7 and newer)."""
    return ",".join(
        [
            WORDS[collective],
            str(low),
            str(high),
            setting.algorithm.lower(),
            setting.protocol.lower(),
            str(setting.channels or -1),
            "1",
            str(ranks),
        ]
    )


def widened(environment: Environment, most: int, protocols: Sequence[str] = PROTOCOLS) -> dict[str, str]:
    """An environment in which a tuner may pick up to `most` channels and, if named, LL128.

    A tuner chooses among what the communicator has: NCCL makes the channels at its start, and a protocol that is
    off stays off. Variables that would override or narrow its choice are dropped.
    """
    overriding = {
        "NCCL_ALGO",
        "NCCL_PROTO",
        "NCCL_MAX_NCHANNELS",
        "NCCL_MIN_NCHANNELS",
        "NCCL_MAX_CTAS",
        "NCCL_MIN_CTAS",
        "NCCL_MAX_NRINGS",
        "NCCL_MIN_NRINGS",
    }
    wide = {key: value for key, value in environment.items() if key not in overriding}
    wide["NCCL_MIN_CTAS"] = str(most)
    if "LL128" in protocols:
        wide["NCCL_PROTO"] = "LL,LL128,Simple"
    return wide


def trials(
    environment: Environment,
    wanted: Mapping[Setting, Sequence[int]],
    collective: str,
    plugin: str,
    ranks: int,
    number: int,
) -> Case:
    """All settings on the communicator of one start, at the sizes wanted: start-to-start spread is common to all.

    environment: as `widened` returns it. number: of the start; each has an order of its own.
    """
    order = random.Random(number).sample(list(wanted), len(wanted))
    return Case(
        "trials",
        {**environment, PLUGIN: plugin},
        round=number,
        collectives=(collective,),
        sizes=tuple(sorted({size for sizes in wanted.values() for size in sizes})),
        trials={
            str(setting): Trial(row(collective, 0, ENDLESS, setting, ranks) + "\n", tuple(wanted[setting]))
            for setting in order
        },
    )


def everywhere(environment: Environment, setting: Setting) -> Case:
    """A setting for all sizes by variables alone. environment: as `widened` returns it."""
    found = {**environment, "NCCL_ALGO": setting.algorithm, "NCCL_PROTO": setting.protocol}
    if setting.channels:
        found |= {"NCCL_MIN_CTAS": str(setting.channels), "NCCL_MAX_CTAS": str(setting.channels)}
    return Case(f"{setting} everywhere", found)


def sweep_without_plugin(environment: Environment, candidates: Mapping[str, Sequence[Setting]]) -> list[Case]:
    """Each setting by variables alone, for hosts that get no plugin: the result is one environment for all sizes."""
    found: list[Case] = []
    for setting in dict.fromkeys(setting for listed in candidates.values() for setting in listed):
        names = tuple(name for name, listed in candidates.items() if setting in listed)
        bare = {key: value for key, value in widened(environment, 1, ()).items() if key != "NCCL_MIN_CTAS"}
        bare |= {"NCCL_ALGO": setting.algorithm, "NCCL_PROTO": setting.protocol}
        if setting.channels:
            bare |= {"NCCL_MIN_CTAS": str(setting.channels), "NCCL_MAX_CTAS": str(setting.channels)}
        found.append(Case(str(setting), bare, collectives=names))
    return found


def job(
    cases: Sequence[Case],
    sizes: Sequence[int],
    *,
    ranks: int,
    dtype: str,
    collectives: Sequence[str] = ("all_reduce",),
    repeats: int = 20,
    timeout: float = 60.0,
    environment: Environment | None = None,
    rehearsal: bool = False,
    gang: int = 1,
) -> dict[str, Any]:
    """What probe.py reads. timeout: seconds per case; environment: for every case; gang: cases started together."""
    return {
        "ranks": ranks,
        "backend": "gloo" if rehearsal else "nccl",
        "environment": dict(environment or {}),
        "collectives": list(collectives),
        "sizes": list(sizes),
        "dtype": dtype,
        "repeats": repeats,
        "calls": 3 if rehearsal else 50,
        "graph": not rehearsal,
        "timeout": timeout,
        "gang": gang,
        "cases": [case.as_job() for case in cases],
    }
