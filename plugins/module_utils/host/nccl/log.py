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
    r"^.*?[^\s:\[\]]+:\d+:(?P<tid>\d+) \[-?\d+\] "
    r"(?:\S+:\d+(?: \([^)]*\))? )?NCCL (?:INFO|WARN|ATTN) (?P<text>.*)$"
)
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+\S*?)(?:\+cuda\d+\.\d+)?\s*$")
_SET = re.compile(r"^(NCCL_\w+) set (?:by environment )?to (?:(-?\d+)\.|(.*))$")
_POLICY = re.compile(r"^Parsed environment variable (NCCL_\w+)=(.*) to -?\d+$")
_CONFIG = re.compile(r"^Comm config (\w+) set to (.*)$")
_RESET = re.compile(r"^Comm config \w+ reset to (NCCL_\w+)=(.*)$")
_COMM = re.compile(
    r"(?:\[Rank \d+\] )?\w+ comm (?P<address>0x[0-9a-f]+) rank (?P<rank>\d+) "
    r"nranks (?P<ranks>\d+) cudaDev \d+ (?:nvmlDev \d+ )?busId (?P<bus>[0-9a-f]+) .*?"
    r" ?- Init (?P<event>START|COMPLETE)"
)
_CHANNELS = re.compile(
    r"(\d+) coll channels, (?:\d+ collnet channels, )?\d+ nvls channels, \d+ p2p channels, \d+ p2p channels per peer"
)
_CONNECTION = re.compile(
    r"^Channel (\d+)(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\] (?:\[(?:send|receive)\] )?"
    r"via (P2P|SHM|NET)/(.*)$"
)
_CHOICE = re.compile(r"^(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}")
_KERNEL = re.compile(r"^(\w+) \[([\w ]+)\]: (\d+) Bytes -> (.*)$")


@dataclass(frozen=True)
class Setting:
    """A variable as NCCL saw it. origin: environment (its settings files count as such) or program."""

    value: str
    origin: str


@dataclass(frozen=True)
class Communicator:
    """One communicator of this rank. complete is False while its start has not ended; channels are the collective."""

    address: str
    rank: int
    ranks: int
    bus_id: str
    complete: bool = False
    channels: int | None = None


@dataclass(frozen=True)
class Connection:
    """One direction of one channel between two ranks.

    transport is P2P, SHM or NET; detail is CUMEM, IPC, direct, Socket/0 and so on.
    """

    channel: int
    source: int
    target: int
    transport: str
    detail: str


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


@dataclass
class RankLog:
    """The log of one rank's process."""

    file: str
    version: str | None = None
    settings: dict[str, Setting] = field(default_factory=dict)
    communicators: list[Communicator] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    noticed: list[Diagnosis] = field(default_factory=list)
    lines: int = 0

    @property
    def transports(self) -> dict[str, int]:
        """How many connections use P2P, SHM and NET."""
        return dict(Counter(connection.transport for connection in self.connections))

    @property
    def channels(self) -> int | None:
        """The collective channels of the largest communicator, None when the log does not say."""
        known = [comm for comm in self.communicators if comm.channels is not None]
        largest = max(known, key=lambda comm: comm.ranks, default=None)
        return largest.channels if largest else None


def parse(text: str, file: str) -> RankLog:
    """The log of one rank; any text is taken, also one that is cut off or holds an engine's own lines."""
    log = RankLog(file)
    starting: dict[str, str] = {}
    for line in text.splitlines():
        if " Bytes -> Algo " in line and " NCCL INFO " in line:  # nearly all of a long log, so by the short way
            log.lines += 1
            _traffic(log, line.rpartition(" NCCL INFO ")[2])
            continue
        match = _PREFIX.match(line) if " NCCL " in line else None
        if match is None:
            _version(log, line)
            continue
        log.lines += 1
        message = match["text"]
        known = _version(log, message) or _setting(log, message)
        if not known and not _communicator(log, message, match["tid"], starting):
            _traffic(log, message)
        log.noticed += notice(message)
    return log


def _version(log: RankLog, text: str) -> bool:
    match = _VERSION.search(text)
    if match and log.version is None:
        log.version = match[1]
    return match is not None


def _setting(log: RankLog, text: str) -> bool:
    """Lines that tell a variable's value."""
    match = _SET.match(text)
    if match:
        _see(log, match[1], Setting(match[2] if match[2] is not None else match[3], "environment"))
        return True
    match = _POLICY.match(text) or _RESET.match(text)
    if match:
        _see(log, match[1], Setting(match[2], "environment"))
        return True
    match = _CONFIG.match(text)
    if match:
        log.settings.setdefault(match[1], Setting(match[2], "program"))
    return match is not None


def _see(log: RankLog, name: str, setting: Setting) -> None:
    """Keeps the first value of a variable; one that changes between communicators is worth a notice."""
    first = log.settings.setdefault(name, setting)
    if first.value != setting.value:
        meaning = f"{name} was {first.value} at first and {setting.value} for a later communicator."
        todo = "find out what changes it while the engine runs"
        log.noticed.append(Diagnosis("value-differs", meaning, todo))


def _communicator(log: RankLog, text: str, thread: str, starting: dict[str, str]) -> bool:
    """Lines about a communicator; those without its address belong to the one this thread is starting."""
    match = _COMM.search(text)
    if match:
        address = match["address"]
        if match["event"] == "START":
            starting[thread] = address
            log.communicators.append(Communicator(address, int(match["rank"]), int(match["ranks"]), match["bus"]))
        else:
            _update(log, address, complete=True)
        return True
    match = _CHANNELS.search(text)
    if match:
        _update(log, starting.get(thread), channels=int(match[1]))
    return match is not None


def _update(log: RankLog, address: str | None, **changes: object) -> None:
    """Changes the newest communicator at an address; addresses are used again after a communicator ends."""
    for place in reversed(range(len(log.communicators))):
        if log.communicators[place].address == address:
            log.communicators[place] = replace(log.communicators[place], **changes)
            return


def _traffic(log: RankLog, text: str) -> None:
    """Lines about connections and calls."""
    match = _CHOICE.match(text)
    if match:
        channels = int(match[6]) - int(match[5]) + 1
        log.choices.append(Choice(match[1], int(match[2]), match[3], match[4], channels))
        return
    match = _CONNECTION.match(text)
    if match:
        log.connections.append(Connection(int(match[1]), int(match[2]), int(match[3]), match[4], match[5]))
        return
    match = _KERNEL.match(text)
    if match:
        log.choices.append(Choice(match[1], int(match[3]), match[2], None, None))
