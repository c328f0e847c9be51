"""Reads NCCL's own debug log of one rank: what was set, how GPUs are joined, what each message ran with.

The formats are those of the source of NCCL 2.24 to 2.30 and of the strings in the 2.32 library. A line that
fits no format is passed over; diagnosis.diagnose tells what is missing.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from .diagnosis import Diagnosis, notice

_PREFIX = re.compile(
    r"^(?P<before>.*?)(?P<host>[^\s:\[\]]+):(?P<pid>\d+):(?P<tid>\d+) \[(?P<device>-?\d+)\] "
    r"(?:(?P<where>\S+:\d+(?: \([^)]*\))?) )?NCCL (?P<level>INFO|WARN|ATTN) (?P<text>.*)$"
)
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)(\S*?)(?:\+cuda(\d+\.\d+))?\s*$")
_SET = re.compile(r"^(NCCL_\w+) set (?:by environment )?to (?:(-?\d+)\.|(.*))$")
_POLICY = re.compile(r"^Parsed environment variable (NCCL_\w+)=(.*) to -?\d+$")
_CONFIG = re.compile(r"^Comm config (\w+) set to (.*)$")
_RESET = re.compile(r"^Comm config \w+ reset to (NCCL_\w+)=(.*)$")
_COMM = re.compile(
    r"(?:\[Rank \d+\] )?(?P<function>\w+) comm (?P<address>0x[0-9a-f]+) rank (?P<rank>\d+) "
    r"nranks (?P<ranks>\d+) cudaDev (?P<cuda>\d+) (?:nvmlDev \d+ )?busId (?P<bus>[0-9a-f]+) .*?"
    r" ?- Init (?P<event>START|COMPLETE)"
)
_SHAPE = re.compile(r"comm (0x[0-9a-f]+) rank \d+ nRanks \d+ nNodes (\d+) localRanks (\d+)")
_CHANNELS = re.compile(
    r"(\d+) coll channels, (?:(\d+) collnet channels, )?(\d+) nvls channels, (\d+) p2p channels, "
    r"(\d+) p2p channels per peer"
)
_CONNECTION = re.compile(
    r"^Channel (\d+)(?:/(\d+))? : (\d+)\[\w+\] -> (\d+)\[\w+\] (?:\[(?:send|receive)\] )?"
    r"via (P2P|SHM|NET)/(.*)$"
)
_CHOICE = re.compile(r"^(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}")
_KERNEL = re.compile(r"^(\w+) \[([\w ]+)\]: (\d+) Bytes -> (.*)$")
_NETWORK = re.compile(r"^Using network (.*)$")
_MATRIX = "Enabled NCCL Func/Proto/Algo Matrix:"


@dataclass(frozen=True)
class Setting:
    """A variable as NCCL saw it. origin: environment (its settings files count as such) or program."""

    value: str
    origin: str
    line: int


@dataclass(frozen=True)
class Channels:
    """How many channels a communicator has, by use."""

    collective: int
    nvls: int
    point_to_point: int
    per_peer: int


@dataclass(frozen=True)
class Communicator:
    """One communicator of this rank. complete is False while its start has not ended."""

    address: str
    function: str
    rank: int
    ranks: int
    cuda_device: int
    bus_id: str
    line: int
    complete: bool = False
    nodes: int | None = None
    local_ranks: int | None = None
    channels: Channels | None = None


@dataclass(frozen=True)
class Connection:
    """One direction of one channel between two ranks.

    transport is P2P, SHM or NET; detail is CUMEM, IPC, direct, Socket/0 and so on.
    """

    channel: int
    index: int | None
    source: int
    target: int
    transport: str
    detail: str
    line: int


@dataclass(frozen=True)
class Choice:
    """What a call ran with, printed by rank 0 when it was enqueued: at graph capture, not at replay.

    algorithm is the kind in brackets, such as Symmetric, for calls outside algorithm and protocol.
    """

    function: str
    bytes: int
    algorithm: str
    protocol: str | None
    channels: int | None
    line: int


@dataclass(frozen=True)
class Message:
    """A warning of NCCL, with the place in its source."""

    level: str
    text: str
    where: str | None
    line: int


@dataclass
class RankLog:
    """The log of one rank's process."""

    file: str
    version: str | None = None
    cuda: str | None = None
    host: str | None = None
    pid: int | None = None
    network: str | None = None
    settings: dict[str, Setting] = field(default_factory=dict)
    communicators: list[Communicator] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    enabled: dict[str, dict[str, int]] = field(default_factory=dict)
    """By collective: each protocol and algorithm, 0 off, 1 on, 2 left to NCCL. Only rank 0 prints it."""
    warnings: list[Message] = field(default_factory=list)
    noticed: list[Diagnosis] = field(default_factory=list)
    lines: int = 0

    @property
    def transports(self) -> dict[str, int]:
        """How many connections use P2P, SHM and NET."""
        return dict(Counter(connection.transport for connection in self.connections))

    @property
    def channels(self) -> int | None:
        """The collective channels of the largest communicator, None when the log does not say."""
        known = [comm for comm in self.communicators if comm.channels]
        largest = max(known, key=lambda comm: comm.ranks, default=None)
        return largest.channels.collective if largest and largest.channels else None

    def by_size(self, function: str) -> dict[int, set[tuple[str, str | None]]]:
        """Algorithm and protocol for each message size in bytes."""
        sizes: dict[int, set[tuple[str, str | None]]] = {}
        for choice in self.choices:
            if choice.function.lower() == function.lower():
                sizes.setdefault(choice.bytes, set()).add((choice.algorithm, choice.protocol))
        return dict(sorted(sizes.items()))


def parse(text: str, file: str) -> RankLog:
    """The log of one rank; any text is taken, also one that is cut off or holds an engine's own lines."""
    log = RankLog(file)
    header: list[list[str]] | None = None
    starting: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if " Bytes -> Algo " in line and " NCCL INFO " in line:  # nearly all of a long log, so by the short way
            header = None
            log.lines += 1
            _traffic(log, line.rpartition(" NCCL INFO ")[2], number)
            continue
        match = _PREFIX.match(line) if " NCCL " in line else None
        if match is None:
            header = None if header is None else _matrix(log, header, line)
            _version(log, line)
            continue
        header = None
        log.lines += 1
        log.host, log.pid = log.host or match["host"], log.pid or int(match["pid"])
        message = match["text"]
        if match["level"] != "INFO":
            log.warnings.append(Message(match["level"], message, match["where"], number))
        if message.startswith(_MATRIX):
            header = []
        elif not (
            _version(log, message)
            or _setting(log, message, number)
            or _communicator(log, message, number, match["tid"], starting)
        ):
            _traffic(log, message, number)
        log.noticed += notice(message, number)
    return log


def _version(log: RankLog, text: str) -> bool:
    match = _VERSION.search(text)
    if match and log.version is None:
        log.version, log.cuda = match[1] + match[2], match[3]
    return match is not None


def _setting(log: RankLog, text: str, number: int) -> bool:
    """Lines that tell a variable's value."""
    match = _SET.match(text)
    if match:
        _see(log, match[1], Setting(match[2] if match[2] is not None else match[3], "environment", number))
        return True
    match = _POLICY.match(text) or _RESET.match(text)
    if match:
        _see(log, match[1], Setting(match[2], "environment", number))
        return True
    match = _CONFIG.match(text)
    if match:
        log.settings.setdefault(match[1], Setting(match[2], "program", number))
    return match is not None


def _see(log: RankLog, name: str, setting: Setting) -> None:
    """Keeps the first value of a variable; one that changes between communicators is worth a notice."""
    first = log.settings.setdefault(name, setting)
    if first.value != setting.value:
        meaning = f"{name} was {first.value} at first and {setting.value} for a later communicator."
        todo = "find out what changes it while the engine runs"
        log.noticed.append(Diagnosis("value-differs", meaning, todo, setting.line))


def _communicator(log: RankLog, text: str, number: int, thread: str, starting: dict[str, str]) -> bool:
    """Lines about a communicator; those without its address belong to the one this thread is starting."""
    match = _COMM.search(text)
    if match:
        address = match["address"]
        if match["event"] == "START":
            starting[thread] = address
            log.communicators.append(
                Communicator(
                    address=address,
                    function=match["function"],
                    rank=int(match["rank"]),
                    ranks=int(match["ranks"]),
                    cuda_device=int(match["cuda"]),
                    bus_id=match["bus"],
                    line=number,
                )
            )
        else:
            _update(log, address, complete=True)
        return True
    match = _SHAPE.search(text)
    if match:
        _update(log, match[1], nodes=int(match[2]), local_ranks=int(match[3]))
        return True
    match = _CHANNELS.search(text)
    if match:
        channels = Channels(int(match[1]), int(match[3]), int(match[4]), int(match[5]))
        _update(log, starting.get(thread), channels=channels)
    return match is not None


def _update(log: RankLog, address: str | None, **changes: object) -> None:
    """Changes the newest communicator at an address; addresses are used again after a communicator ends."""
    for place in reversed(range(len(log.communicators))):
        if log.communicators[place].address == address:
            log.communicators[place] = replace(log.communicators[place], **changes)
            return


def _traffic(log: RankLog, text: str, number: int) -> None:
    """Lines about connections and calls."""
    match = _CHOICE.match(text)
    if match:
        channels = int(match[6]) - int(match[5]) + 1
        log.choices.append(Choice(match[1], int(match[2]), match[3], match[4], channels, number))
        return
    match = _CONNECTION.match(text)
    if match:
        index = int(match[2]) if match[2] else None
        log.connections.append(
            Connection(int(match[1]), index, int(match[3]), int(match[4]), match[5], match[6], number)
        )
        return
    match = _KERNEL.match(text)
    if match:
        log.choices.append(Choice(match[1], int(match[3]), match[2], None, None, number))
        return
    match = _NETWORK.match(text)
    if match:
        log.network = match[1]


def _matrix(log: RankLog, header: list[list[str]], line: str) -> list[list[str]] | None:
    """One line of the table of what is enabled; None ends it. The last row may be cut off."""
    blocks = [block.split() for block in line.split("|")]
    if len(blocks) < 2 or len(blocks[0]) != 1:
        return None
    if not header:
        return blocks if blocks[0] == ["Function"] else None
    row = log.enabled.setdefault(blocks[0][0], {})
    for names, numbers in zip(header[1:], blocks[1:]):
        row.update({name: int(state) for name, state in zip(names, numbers) if state.isdigit()})
    return header
