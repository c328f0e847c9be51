"""What the recorded logs of NCCL show against a declaration."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host.nccl import expect, log
from tests.unit.host.test_nccl_log import by_size

RECORDINGS = Path(__file__).parents[2] / "recordings/nccl"
VERSIONS = ["2.28.9", "2.30.7"]
SIX = {
    "NCCL_ALGO": "Ring",
    "NCCL_BUFFSIZE": "16777216",
    "NCCL_MAX_NCHANNELS": "16",
    "NCCL_NTHREADS": "512",
    "NCCL_P2P_LEVEL": "SYS",
    "NCCL_PROTO": "LL",
}
QUIET = {"NCCL_NVLS_ENABLE": "0"}  # set in every recording


def recorded(name, version="2.28.9", rank=0, **substitutions):
    """A recorded log; `substitutions` replace a variable's value in the line that tells it."""
    path = RECORDINGS / version / f"{name}.rank{rank}.log"
    text = path.read_text()
    for variable, (old, new) in substitutions.items():
        assert f"{variable} set by environment to {old}" in text
        text = text.replace(f"{variable} set by environment to {old}", f"{variable} set by environment to {new}")
    return log.parse(text, path.name)


def found(environment, seen):
    return {(finding.severity, finding.id, finding.variable) for finding in expect.findings(environment, seen)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("default", {}),
        ("pcie-ll-ring", SIX),
        ("p2p-disabled", {"NCCL_P2P_DISABLE": "1"}),
        ("p2p-disabled-pcie-ll-ring", {**SIX, "NCCL_P2P_DISABLE": "1"}),
        ("p2p-disabled-tuned", {"NCCL_P2P_DISABLE": "1"}),
    ],
)
def test_what_was_set_is_seen_and_in_force(version, rank, name, environment):
    seen = recorded(name, version, rank)
    assert found({**environment, **QUIET}, seen) == set()
    assert expect.version(seen.version) == tuple(map(int, version.split(".")))
    assert (seen.communicators[0].rank, seen.communicators[0].complete) == (rank, True)
    assert seen.connections


@pytest.mark.parametrize(
    ("name", "via", "channels"),
    [
        ("default", {("P2P", "CUMEM")}, 24),
        ("pcie-ll-ring", {("P2P", "CUMEM")}, 16),
        ("p2p-disabled", {("SHM", "direct/direct")}, 4),
    ],
)
def test_channels_and_transports_are_read(name, via, channels):
    seen = recorded(name)
    assert {(one.transport, one.detail) for one in seen.connections} == via
    assert (seen.channels, len(seen.connections)) == (channels, channels)


def test_what_sizes_ran_with_is_read():
    assert by_size(recorded("default"), "AllReduce") == {
        4: {("RING", "LL")},
        14336: {("RING", "LL")},
        58720256: {("RING", "SIMPLE")},
    }
    assert recorded("default", rank=1).choices == []  # only rank 0 tells


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "environment", "finding"),
    [
        ("default", SIX, ("failure", "not-seen", "NCCL_PROTO")),
        ("default", SIX, ("failure", "not-seen", "NCCL_BUFFSIZE")),
        ("default", SIX, ("failure", "above-cap", "NCCL_MAX_NCHANNELS")),
        ("default", {"NCCL_PROTO": "LL"}, ("failure", "other-choice", "NCCL_PROTO")),
        ("default", {"NCCL_ALGO": "Tree"}, ("failure", "other-choice", "NCCL_ALGO")),
        ("default", {"NCCL_ALGO": "ring;allreduce:^ring"}, ("failure", "other-choice", "NCCL_ALGO")),
        ("default", {"NCCL_P2P_DISABLE": "1"}, ("failure", "p2p-in-use", "NCCL_P2P_DISABLE")),
        ("default", {"NCCL_P2P_LEVEL": "LOC"}, ("failure", "p2p-in-use", "NCCL_P2P_LEVEL")),
        ("p2p-level-node", {"NCCL_P2P_LEVEL": "NODE"}, ("failure", "ignored", "NCCL_P2P_LEVEL")),
        ("p2p-disabled", {"NCCL_P2P_LEVEL": "SYS"}, ("warning", "no-p2p", "NCCL_P2P_LEVEL")),
        ("p2p-disabled", {"NCCL_SHM_DISABLE": "1"}, ("failure", "shm-in-use", "NCCL_SHM_DISABLE")),
        ("pcie-ll-ring", {"NCCL_MAX_NCHANNELS": "8"}, ("failure", "other-value", "NCCL_MAX_NCHANNELS")),
        ("pcie-ll-ring", {"NCCL_BUFFSIZE": "16M"}, ("failure", "other-value", "NCCL_BUFFSIZE")),
        ("pcie-ll-ring", {"NCCL_MIN_CTAS": "32"}, ("warning", "below-floor", "NCCL_MIN_CTAS")),
        ("no-algorithm", {"NCCL_ALGO": "allreduce:NVLSTree"}, ("failure", "nothing-left-to-run", "NCCL_ALGO")),
        ("p2p-disabled", {"NCCL_NVLS_ENABLE": "2"}, ("warning", "other-value", "NCCL_NVLS_ENABLE")),
    ],
)
def test_what_is_not_in_force_is_found(version, name, environment, finding):
    assert finding in found(environment, recorded(name, version))


@pytest.mark.parametrize(
    ("environment", "substitution"),
    [
        ({**SIX, "NCCL_BUFFSIZE": "0x1000000"}, {}),  # NCCL prints it in decimal
        ({**SIX, "NCCL_P2P_LEVEL": "4"}, {}),  # the old numbering
        ({**SIX, "NCCL_PROTO": "^LL128,Simple"}, {"NCCL_PROTO": ("LL", "^LL128,Simple")}),
        ({**SIX, "NCCL_ALGO": "^Tree"}, {"NCCL_ALGO": ("Ring", "^Tree")}),
        ({**SIX, "NCCL_IB_HCA": "mlx5"}, {}),  # read only where there is InfiniBand: its absence shows nothing
        ({**SIX, "NCCL_P2P_DISABLE": "0"}, {}),  # NCCL mentions only a 1
        ({**SIX, "NCCL_DEBUG": "INFO", "NCCL_CONF_FILE": "/x"}, {}),
    ],
)
def test_values_are_compared_as_nccl_takes_them(environment, substitution):
    assert found({**environment, **QUIET}, recorded("pcie-ll-ring", **substitution)) == set()


def test_a_contradiction_names_the_sizes():
    (finding,) = [f for f in expect.findings({"NCCL_PROTO": "LL"}, recorded("default")) if f.id == "other-choice"]
    assert finding.text == ("AllReduce ran with RING/SIMPLE, which NCCL_PROTO=LL does not allow (at 58720256 bytes)")


def test_a_value_that_nccl_clamps_fails_only_for_what_was_declared():
    line = "host:100:100 [0] NCCL INFO Invalid NCCL_NTHREADS 100 (must be a multiple of 32)\n"  # src/graph/tuning.cc
    text = (RECORDINGS / "2.28.9/pcie-ll-ring.rank0.log").read_text() + line
    seen = log.parse(
        text.replace("NCCL_NTHREADS set by environment to 512", "NCCL_NTHREADS set by environment to 100"), "f"
    )
    declared = {**SIX, **QUIET, "NCCL_NTHREADS": "100"}
    assert found(declared, seen) == {("failure", "value-changed", "NCCL_NTHREADS")}
    del declared["NCCL_NTHREADS"]
    assert found(declared, seen) == {("warning", "value-changed", "NCCL_NTHREADS")}


@pytest.mark.parametrize(
    ("text", "collective", "nccl", "left"),
    [
        ("Ring", "AllReduce", (2, 28), {"ring"}),
        ("tree,Ring", "AllReduce", (2, 28), {"ring", "tree"}),
        ("^tree", "Broadcast", (2, 28), {"ring"}),
        ("ring;allreduce:tree", "AllReduce", (2, 28), {"tree"}),
        ("ring;allreduce:tree", "AllGather", (2, 28), {"ring"}),
        ("allreduce:tree", "AllGather", (2, 28), None),
        ("allreduce:tree", "AllReduce", (2, 23), {"allreduce:tree"}),  # before 2.24 one list for all
    ],
)
def test_lists_are_read_as_the_version_reads_them(text, collective, nccl, left):
    may = expect.allowed(text, collective, expect.ALGORITHMS[collective], nccl)
    assert may == left if left != {"ring", "tree"} else may >= left


@pytest.mark.failure("3.9")
def test_3_9_a_collective_that_lacks_what_is_listed_is_a_warning():
    """Before 2.24 NCCL ran Ring for a broadcast under NCCL_ALGO=Tree (NVIDIA/nccl#1304)."""
    text = (RECORDINGS / "2.28.9/default.rank0.log").read_text().replace("AllReduce: 14336", "Broadcast: 14336")
    findings = found({"NCCL_ALGO": "Tree"}, log.parse(text, "f"))
    assert ("warning", "other-choice", "NCCL_ALGO") in findings
