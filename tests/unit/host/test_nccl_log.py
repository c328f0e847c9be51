# ruff: noqa: E501
"""NCCL's log, read back: formats that no recording holds, of versions and of lines that were not to be had.

What was recorded is read in test_nccl_expect.py. Each line here is made by filling in a format string of NCCL's source,
named in the comment before it (file at tag); "strings of 2.32.3" are format strings found in the library of that
release.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.servewright.llm.plugins.module_utils.host.nccl import log
from ansible_collections.servewright.llm.plugins.module_utils.host.nccl.diagnosis import diagnose

P = "gpu1:4242:4242 [0] NCCL INFO "  # src/debug.cc at v2.26.6-1, v2.28.9-1 and v2.30.7-1
T = "gpu1:4242:4300 [0] NCCL INFO "  # the same, from the thread that starts a communicator

# from the format strings in src/init.cc (VERSION_STRING, showVersion) at v2.28.9-1
LOG_2_28 = f"""\
{P}NCCL version 2.28.9+cuda13.0
"""
# from the format strings in src/misc/param.cc ncclLoadParam, src/graph/paths.cc ncclGetLevel, src/graph/tuning.cc and
# src/init.cc (commAlloc) at v2.28.9-1
LOG_2_28 += f"""\
{P}NCCL_MAX_NCHANNELS set by environment to 16.
{P}NCCL_BUFFSIZE set by environment to 16777216.
{P}NCCL_P2P_LEVEL set by environment to SYS
{P}Using network Socket
{T}NCCL_PROTO set by environment to LL
{T}NCCL_ALGO set by environment to Ring
"""
# from the format strings in src/init.cc (ncclCommInitRankFunc, initTransportsRank) at v2.28.9-1
LOG_2_28 += f"""\
{T}ncclCommInitRank comm 0x55aa0010 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9f - Init START
{T}comm 0x55aa0010 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0
{T}16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels per peer
{T}ncclCommInitRank comm 0x55aa0010 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9f - Init COMPLETE
"""
# from the format strings in src/transport/p2p.cc p2pSendSetup and src/transport/shm.cc shmSendSetup at v2.28.9-1
LOG_2_28 += f"""\
{T}Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
{T}Channel 01/0 : 0[0] -> 1[1] via P2P/IPC/read
{T}Channel 02 : 0[0] -> 4[4] via SHM/direct/direct
"""
# from the format strings in src/enqueue.cc scheduleCollTasksToPlan and src/scheduler/symmetric_sched.cc at v2.28.9-1
LOG_2_28 += f"""\
{P}AllReduce: 14336 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..0}}
{P}AllReduce: 58720256 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..15}}
{P}AllGather: 1024 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..3}}
{P}AllReduce [Symmetric]: 8192 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512 nWorks 1
"""

LOG_2_30 = (
    # src/init.cc VERSION_STRING, src/misc/git_version.cc at v2.30.7-1
    f"{P}NCCL version 2.30.7+cuda13.2\n{P}NCCL git version v2.30 abcdef0\n"
    # src/init.cc ncclCommInitRankFunc at v2.30.7-1
    f"{T}[Rank 3] ncclCommInitRankConfig comm 0x7f00 rank 3 nranks 4 cudaDev 3 nvmlDev 3 busId c1000 "
    "commId 0xab - Init START\n"
    # src/init.cc initTransportsRank at v2.30.7-1
    f"{T}8 coll channels, 8 collnet channels, 16 nvls channels, 16 p2p channels, 2 p2p channels per peer\n"
    f"{T}ncclCommInitRankConfig comm 0x7f00 rank 3 nranks 4 cudaDev 3 nvmlDev 3 busId c1000 commId 0xab - Init "
    "COMPLETE\n"
    # src/init.cc (split) at v2.30.7-1: no space before the dash of START
    f"{T}ncclCommSplit comm 0x7f99 rank 1 nranks 2 cudaDev 3 nvmlDev 3 busId c1000 parent 0x7f00 childCount 1 color 5 "
    "key 3- Init START\n"
    # src/transport/shm.cc shmSendSetup, src/transport/net.cc sendSetup at v2.30.7-1
    f"{T}Channel 00 : 3[3] -> 0[0] via SHM/direct\n"
    f"{T}Channel 00/0 : 3[3] -> 4[0] [send] via NET/Socket/0/Shared\n"
    # src/init.cc envConfigOverride, getEnvCtaPolicyOnce and NCCL_CONFIG_DEFAULT at v2.30.7-1
    f"{P}Comm config maxCTAs reset to NCCL_MAX_CTAS=8\n"
    f"{P}Comm config blocking set to 1\n"
    f"{P}Parsed environment variable NCCL_CTA_POLICY=EFFICIENCY to 1\n"
    # src/enqueue.cc at v2.30.7-1
    f"{P}AllGather [Copy Engine]: 16777216 Bytes -> cudaMemcpy\n"
)

LOG_2_26 = (
    # src/init.cc at v2.26.6-1
    f"{P}NCCL version 2.26.6+cuda12.9\n"
    f"{T}ncclCommSplit comm 0x1a rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 parent 0x19 splitCount 1 color 7 key 0- "
    "Init START\n"
    f"{T}ncclCommSplit comm 0x1a rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 parent 0x19 splitCount 1 color 7 key 0 - "
    "Init COMPLETE\n"
    # src/transport/p2p.cc at v2.26.6-1
    f"{T}Channel 00/1 : 0[0] -> 1[1] via P2P/direct pointer\n"
)

WARNINGS = (
    # src/debug.cc at v2.28.9-1 (timestamp, no function) and v2.30.7-1 (function); both begin with an empty line
    "\n[2026-10-01 12:00:00] gpu1:4242:4300 [0] src/misc/shmutils.cc:131 NCCL WARN "
    # src/misc/shmutils.cc at v2.28.9-1
    "Error while attaching to shared memory segment /dev/shm/nccl-x1 (size 9637888), error: No such file or "
    "directory (2)\n"
    "\n[2026-10-01 12:00:01] gpu1:4242:4300 [0] src/misc/shmutils.cc:87 (ncclShmOpen) NCCL WARN "
    "Error: failed to extend /dev/shm/nccl-x2 to 9637892 bytes, error: No space left on device (28)\n"
    # src/enqueue.cc at v2.28.9-1 and v2.30.7-1
    "\n[2026-10-01 12:00:02] gpu1:4242:4300 [0] src/enqueue.cc:1859 NCCL WARN "
    "Error : no algorithm/protocol available for function Broadcast with datatype ncclInt8. NCCL_ALGO was set to "
    "Tree.\n"
    # src/graph/tuning.cc parseList at v2.28.9-1
    '\n[2026-10-01 12:00:03] gpu1:4242:4300 [0] src/graph/tuning.cc:104 NCCL WARN Unrecognized element token "LL64" '
    'when parsing "LL64"\n'
    # src/graph/tuning.cc getNthreads at v2.28.9-1: INFO from 2.27 on
    f"{T}Invalid NCCL_NTHREADS 100 (must be a multiple of 32)\n"
)


def by_size(found: log.RankLog, function: str) -> dict[int, set[tuple[str, str | None]]]:
    """Algorithm and protocol for each message size in bytes."""
    sizes: dict[int, set[tuple[str, str | None]]] = {}
    for choice in found.choices:
        if choice.function == function:
            sizes.setdefault(choice.bytes, set()).add((choice.algorithm, choice.protocol))
    return sizes


def test_settings_of_2_28() -> None:
    found = log.parse(LOG_2_28, "gpu1.4242")
    assert {name: setting.value for name, setting in found.settings.items()} == {
        "NCCL_MAX_NCHANNELS": "16",
        "NCCL_BUFFSIZE": "16777216",
        "NCCL_P2P_LEVEL": "SYS",
        "NCCL_PROTO": "LL",
        "NCCL_ALGO": "Ring",
    }
    assert {setting.origin for setting in found.settings.values()} == {"environment"}
    assert found.version == "2.28.9"


def test_communicator_of_2_28() -> None:
    (comm,) = log.parse(LOG_2_28, "f").communicators
    assert (comm.rank, comm.ranks, comm.bus_id, comm.complete, comm.channels) == (0, 8, "1000", True, 16)
    assert log.parse(LOG_2_28, "f").channels == 16


def test_connections_of_2_28() -> None:
    found = log.parse(LOG_2_28, "f")
    assert found.transports == {"P2P": 2, "SHM": 1}
    assert [(c.channel, c.source, c.target, c.transport, c.detail) for c in found.connections] == [
        (0, 0, 1, "P2P", "CUMEM"),
        (1, 0, 1, "P2P", "IPC/read"),
        (2, 0, 4, "SHM", "direct/direct"),
    ]


def test_what_each_size_ran_with() -> None:
    found = log.parse(LOG_2_28, "f")
    assert by_size(found, "AllReduce") == {
        8192: {("Symmetric", None)},
        14336: {("RING", "LL")},
        58720256: {("RING", "LL")},
    }
    assert [choice.channels for choice in found.choices] == [1, 16, 4, None]


def test_2_30() -> None:
    found = log.parse(LOG_2_30, "f")
    assert found.version == "2.30.7"
    first, split = found.communicators
    assert (first.rank, first.ranks, first.complete) == (3, 4, True)
    assert first.channels == 8
    assert (split.ranks, split.complete) == (2, False)
    assert found.transports == {"SHM": 1, "NET": 1}
    assert found.connections[1].detail == "Socket/0/Shared"
    assert found.settings["NCCL_MAX_CTAS"].value == "8"
    assert found.settings["blocking"].origin == "program"
    assert found.settings["NCCL_CTA_POLICY"].value == "EFFICIENCY"
    assert by_size(found, "AllGather") == {16777216: {("Copy Engine", None)}}


def test_2_26() -> None:
    found = log.parse(LOG_2_26, "f")
    assert found.version == "2.26.6"
    assert [comm.complete for comm in found.communicators] == [True]
    assert found.connections[0].detail == "direct pointer"


def test_2_32() -> None:
    # strings of 2.32.3
    text = f"{P}AllReduce: 14336 Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..1}} cgaClusterSize 4\n"
    text += "[2026-10-01 12:00:00] gpu1:4242:4242 [0] src/init.cc:1 (f) NCCL ATTN something worth knowing\n"
    found = log.parse(text, "f")
    assert by_size(found, "AllReduce") == {14336: {("RING", "LL")}}
    assert found.lines == 2


def test_warnings_are_named() -> None:
    found = log.parse(WARNINGS, "f")
    assert [notice.id for notice in found.noticed] == [
        "segment-gone",
        "shm-full",
        "nothing-left-to-run",
        "unknown-word",
        "value-changed",
    ]
    assert all(notice.todo and notice.text for notice in found.noticed)


@pytest.mark.parametrize(
    ("text", "identifiers"),
    [
        ("", ["no-nccl-lines"]),
        ("INFO 10-01 vllm engine started\n", ["no-nccl-lines"]),
        (f"{P}NCCL version 2.28.9+cuda13.0\n", ["no-communicator"]),
        (LOG_2_28, []),
        (LOG_2_30, ["start-not-complete"]),
        (LOG_2_28[: LOG_2_28.index("AllReduce: 14336")], ["no-choices"]),
        (LOG_2_28[: LOG_2_28.index("- Init COMPLETE")], ["start-not-complete"]),
        (LOG_2_28 + WARNINGS.splitlines()[1] + "\n", ["segment-gone"]),
    ],
)
def test_diagnosis(text: str, identifiers: list[str]) -> None:
    assert [diagnosis.id for diagnosis in diagnose(log.parse(text, "f"))] == identifiers


def test_lines_of_an_engine_around_nccls_own() -> None:
    text = "(Worker pid=7) " + P + "NCCL_NTHREADS set by environment to 512.\nLoading weights 10%\n"
    text += "NCCL version 2.28.9+cuda13.0\n"  # src/debug.cc at v2.28.9-1: level VERSION has no prefix
    found = log.parse(text, "f")
    assert found.settings["NCCL_NTHREADS"].value == "512"
    assert found.version == "2.28.9"


def test_an_address_used_again_is_another_communicator() -> None:
    start = f"{T}ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1 commId 0x9 - Init START\n"
    text = start + start.replace("START", "COMPLETE") + start
    assert [comm.complete for comm in log.parse(text, "f").communicators] == [True, False]


def test_a_value_that_changes_between_communicators() -> None:
    text = f"{T}NCCL_ALGO set by environment to Ring\n{T}NCCL_ALGO set by environment to allreduce:tree\n"
    found = log.parse(text + f"{T}NCCL_ALGO set by environment to Ring\n", "f")
    assert found.settings["NCCL_ALGO"].value == "Ring"
    assert [notice.id for notice in found.noticed] == ["value-differs"]
    assert "allreduce:tree" in found.noticed[0].meaning


@settings(deadline=None)
@given(st.text(), st.integers(0, len(LOG_2_28)), st.integers(0, len(LOG_2_28)))
def test_any_text_is_read(noise: str, start: int, end: int) -> None:
    found = log.parse(LOG_2_28[start:] + noise + LOG_2_30[:end] + WARNINGS[start:end], "f")
    assert all(diagnosis.todo for diagnosis in diagnose(found))
