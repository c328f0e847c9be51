"""What the probe is asked to measure: environments side by side, without each variable, and swept."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Environment = Mapping[str, str]
Topology = Literal["pcie", "nvlink"]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
COLLECTIVE = "all_reduce"
"""What tensor parallelism waits for, so what a table is tuned for."""
# NVLS is not among them: it needs multicast, which may be off or broken, and nothing here can tell.
ALGORITHMS = ("Ring", "Tree")
# On PCIe NCCL keeps LL128 off, because not every path keeps 128-byte stores together: data can be wrong without an
# error.
PROTOCOLS = {"pcie": ("LL", "Simple"), "nvlink": ("LL", "LL128", "Simple")}
CHANNELS = (2, 4, 8, 16, 32)
"""One channel was never the best of anything measured so far."""
PLUGIN = "NCCL_TUNER_PLUGIN"
TABLE = "NCCL_TUNER_CONFIG_FILE"
HELD = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_IB_DISABLE",
        "NCCL_SOCKET_IFNAME")  # fmt: skip
"""What a service declares of these says what works on its host, not what is fast: it holds in every case."""
ENDLESS = 2**63 - 1
NOTHING = "nothing set"
"""The name of the case without any variable, but those held."""


@dataclass(frozen=True)
class Job:
    """What all cases have in common.

    ranks: processes, one GPU each. sizes: bytes of the larger of a collective's two buffers. timeout: seconds for a
    case. repeats: how often a size is timed. calls: in a graph, at most; large messages get fewer. rehearsal: on CPUs
    with gloo, which says nothing about GPUs.
    """

    ranks: int
    dtype: str
    sizes: tuple[int, ...]
    timeout: float
    collectives: tuple[str, ...] = (COLLECTIVE,)
    repeats: int = 20
    calls: int = 50
    rehearsal: bool = False

    @property
    def backend(self) -> str:
        return "gloo" if self.rehearsal else "nccl"


@dataclass(frozen=True)
class Trial:
    """A tuner table, and the sizes at which it is measured."""

    table: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """One start of a process group. files: variables whose value is to be the path of a file with this text.

    trials: tables measured in turn on this start's one communicator, by the name they get in the result. prune: a
    trial that is slower than the best of its size by more than this factor is timed once and left. sizes and repeats:
    the job's when None.
    """

    name: str
    environment: Environment = field(default_factory=dict)
    files: Environment = field(default_factory=dict)
    round: int = 1
    sizes: tuple[int, ...] | None = None
    repeats: int | None = None
    trials: Mapping[str, Trial] = field(default_factory=dict)
    prune: float | None = None


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


def settings(topology: Topology, channels: Sequence[int]) -> list[Setting]:
    """All that a tuner may choose from inside one host of this topology."""
    return [
        Setting(algorithm, protocol, count)
        for algorithm in ALGORITHMS
        for protocol in PROTOCOLS[topology]
        for count in (None, *channels)
    ]


def row(low: int, high: int, setting: Setting, ranks: int) -> str:
    """One line of a tuner table in the format of NCCL's example plugin (2.27.7 and newer)."""
    return ",".join(
        [
            "allreduce",
            str(low),
            str(high),
            setting.algorithm.lower(),
            setting.protocol.lower(),
            str(setting.channels or -1),
            "1",
            str(ranks),
        ]
    )


def wide(topology: Topology, most: int) -> dict[str, str]:
    """An environment in which a tuner may pick any of the topology's protocols and up to `most` channels.

    A tuner chooses among what the communicator has: NCCL makes the channels at its start, and a protocol that is
    off stays off.
    """
    allowed = {"NCCL_PROTO": ",".join(PROTOCOLS[topology])} if "LL128" in PROTOCOLS[topology] else {}
    return {"NCCL_MIN_CTAS": str(most), **allowed}


def trials(
    environment: Environment, wanted: Mapping[Setting, Sequence[int]], plugin: str, ranks: int, number: int
) -> Case:
    """All settings on the communicator of one start, at the sizes wanted: start-to-start spread is common to all.

    environment: as `wide` returns it. number: of the start; each has an order of its own.
    """
    order = random.Random(number).sample(list(wanted), len(wanted))
    return Case(
        "trials",
        {**environment, PLUGIN: plugin},
        round=number,
        sizes=tuple(sorted({size for sizes in wanted.values() for size in sizes})),
        trials={
            str(setting): Trial(row(0, ENDLESS, setting, ranks) + "\n", tuple(wanted[setting]))
            for setting in order
        },
    )


def everywhere(setting: Setting) -> dict[str, str]:
    """The environment that has NCCL take a setting for all sizes, without a plugin."""
    found = {"NCCL_ALGO": setting.algorithm, "NCCL_PROTO": setting.protocol}
    if setting.channels:
        found |= {"NCCL_MIN_CTAS": str(setting.channels), "NCCL_MAX_CTAS": str(setting.channels)}
    return found
