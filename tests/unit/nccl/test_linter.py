from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servewright.nccl import linter, profiles, registry, rules, sources
from servewright.nccl.facts import Facts
from servewright.nccl.finding import Finding
from servewright.nccl.sources import Location

SIX = {row.variable: row.value for row in profiles.resolve("pcie-ll-ring")}
PCIE: dict[str, Any] = {"interconnect": "pcie", "nodes": 1, "nccl_version": "2.28.9"}
TWO: dict[str, Any] = {**PCIE, "tensor_parallel": 2, "flags": ["--tensor-parallel-size", "2"]}
NO_CUSTOM = {**TWO, "flags": ["--disable-custom-all-reduce"]}


def ids(environment: dict[str, str], **facts: Any) -> set[str]:
    return {finding.id for finding in linter.lint(environment, Facts.model_validate(facts))}


# environment, facts, what has to be found, a word of the message or the suggestion
CASES: list[tuple[dict[str, str], dict[str, Any], str, str]] = [
    # names
    ({"NCCL_P2P_LVL": "SYS"}, {}, "NCCL001", "NCCL_P2P_LEVEL"),
    ({"NCCL_BUFFER_SIZE": "4194304"}, {}, "NCCL001", "NCCL_BUFFSIZE"),
    ({"NCCL_QQQQQQQQ": "1"}, {}, "NCCL001", "remove"),
    ({"NCCL_RAS_ENABLE": "1"}, {"nccl_version": "2.23.4"}, "NCCL002", "2.24"),
    ({"NCCL_LL_THRESHOLD": "0"}, {}, "NCCL002", "removed"),
    ({"NCCL_SHM_USE_CUDA_MEMCPY": "1"}, {"nccl_version": "2.30.7"}, "NCCL002", "2.30.7"),
    ({"NCCL_MNNVL": "1"}, {"nccl_version": "2.21.5"}, "NCCL002", "NCCL_MNNVL_ENABLE"),
    ({"NCCL_MAX_NCHANNELS": "16"}, {"nccl_version": "2.28.9"}, "NCCL003", "NCCL_MAX_CTAS=16"),
    ({"NCCL_CHECK_POINTERS": "1"}, {"nccl_version": "2.30.7"}, "NCCL003", "NCCL_CHECK_MODE=DEBUG_LOCAL"),
    ({"NCCL_ASYNC_ERROR_HANDLING": "1"}, {}, "NCCL003", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1"),
    ({"NCCL_PROTO ": "LL"}, {}, "NCCL014", "NCCL_PROTO=LL"),
    ({"export NCCL_PROTO": "LL"}, {}, "NCCL014", "NCCL_PROTO=LL"),
    # numbers
    ({"NCCL_BUFFSIZE": "16M"}, {}, "NCCL004", "NCCL_BUFFSIZE=16777216"),
    ({"NCCL_MAX_CTAS": "016"}, {}, "NCCL004", "14"),
    ({"NCCL_MAX_CTAS": "016"}, {}, "NCCL004", "NCCL_MAX_CTAS=16"),
    ({"NCCL_P2P_DISABLE": "true"}, {}, "NCCL004", "NCCL_P2P_DISABLE=1"),
    ({"NCCL_BUFFSIZE": "4e6"}, {}, "NCCL004", "stops at the first"),
    ({"NCCL_BUFFSIZE": "9" * 20}, {}, "NCCL004", "keeps its default"),
    ({"NCCL_BUFFSIZE": "0"}, {}, "NCCL005", "does not check"),
    ({"NCCL_P2P_DISABLE": "2"}, {}, "NCCL005", "only the number 1"),
    ({"NCCL_NVLS_ENABLE": "3"}, {"interconnect": "nvlink"}, "NCCL005", "0, 1, 2"),
    ({"NCCL_NTHREADS": "1024"}, {}, "NCCL005", "uses 512"),
    ({"NCCL_NTHREADS": "32"}, {}, "NCCL005", "uses 64"),
    ({"NCCL_NTHREADS": "100"}, {}, "NCCL006", "uses 512"),
    ({"NCCL_NTHREADS": "100"}, {}, "NCCL006", "NCCL_NTHREADS=96"),
    ({"NCCL_MAX_CTAS": "64"}, {"nccl_version": "2.24.3"}, "NCCL005", "uses 32"),
    ({"NCCL_MAX_CTAS": "0"}, {}, "NCCL005", "ignores it"),
    ({"NCCL_MAX_NCHANNELS": "0"}, {}, "NCCL005", "uses 1"),
    ({"NCCL_BUFFSIZE": ""}, {}, "NCCL018", "hidden"),
    # words and levels
    ({"NCCL_P2P_LEVEL": "sys"}, {}, "NCCL008", "NCCL_P2P_LEVEL=SYS"),
    ({"NCCL_P2P_LEVEL": "NODE"}, {}, "NCCL007", "ignores it"),
    ({"NCCL_P2P_LEVEL": "C2C"}, {"nccl_version": "2.26.2"}, "NCCL007", "guide does not name"),
    ({"NCCL_P2P_LEVEL": "C2C"}, {"nccl_version": "2.25.1"}, "NCCL007", "ignores it"),
    ({"NCCL_P2P_LEVEL": "3"}, {}, "NCCL009", "NCCL_P2P_LEVEL=PHB"),
    ({"NCCL_P2P_LEVEL": "9"}, {}, "NCCL009", "NCCL_P2P_LEVEL=SYS"),
    ({"NCCL_DEBUG": "VERBOSE"}, {}, "NCCL007", "nothing is logged"),
    ({"NCCL_DEBUG_SUBSYS": "INIT,FOO"}, {"nccl_version": "2.30.7"}, "NCCL007", "whole list"),
    ({"NCCL_DEBUG_SUBSYS": "INIT,FOO"}, {"nccl_version": "2.28.9"}, "NCCL007", "ignores"),
    ({"NCCL_SOCKET_FAMILY": "af_inet"}, {}, "NCCL008", "AF_INET"),
    ({"NCCL_CTA_POLICY": "FAST"}, {}, "NCCL007", "EFFICIENCY"),
    # quotes and spaces
    ({"NCCL_PROTO": '"LL"'}, {}, "NCCL014", "write NCCL_PROTO=LL"),
    ({"NCCL_MAX_CTAS": "16 "}, {}, "NCCL014", "write NCCL_MAX_CTAS=16"),
    ({"NCCL_TOPO_FILE": "~/topo.xml"}, {}, "NCCL014", "whole path"),
    # algorithms and protocols
    ({"NCCL_PROTO": "LL64"}, {"nccl_version": "2.28.9"}, "NCCL010", "fails to start"),
    ({"NCCL_PROTO": "LL64"}, {"nccl_version": "2.22.3"}, "NCCL010", "ignores it"),
    ({"NCCL_ALGO": "Rings"}, {}, "NCCL010", "write Ring"),
    ({"NCCL_ALGO": "PAT"}, {"nccl_version": "2.22.3"}, "NCCL010", "PAT"),
    ({"NCCL_ALGO": "ring;allreduce:^tree"}, {"nccl_version": "2.22.3"}, "NCCL011", "2.24"),
    ({"NCCL_ALGO": "ring;tree"}, {}, "NCCL011", "first part"),
    ({"NCCL_ALGO": "alltoall:ring"}, {}, "NCCL011", "not a collective"),
    ({"NCCL_ALGO": "Ring,NVLS"}, PCIE, "NCCL012", "NVLink"),
    ({"NCCL_ALGO": "Ring,CollNetChain"}, {}, "NCCL012", "CollNet"),
    ({"NCCL_ALGO": "NVLS"}, PCIE, "NCCL013", "AllReduce"),
    ({"NCCL_ALGO": "Tree"}, PCIE, "NCCL013", "AllGather"),
    ({"NCCL_ALGO": "Tree"}, {"nccl_version": "2.31.2"}, "NCCL013", "list Ring"),
    (
        {"NCCL_PROTO": "Simple", "NCCL_ALGO": "allreduce:tree"},
        {"nccl_version": "2.31.2"},
        "NCCL013",
        "Broadcast",
    ),
    # where it has no effect
    ({"NCCL_NVLS_ENABLE": "2"}, PCIE, "NCCL015", "NVLink"),
    ({"NCCL_IB_HCA": "mlx5"}, PCIE, "NCCL015", "one"),
    ({"VLLM_NCCL_SO_PATH": "/x"}, {"engine": "sglang"}, "NCCL017", "vllm"),
    # engines
    ({"CUDA_DEVICE_MAX_CONNECTIONS": "64"}, {"engine": "sglang"}, "NCCL016", "sets it to 8"),
    (
        {"NCCL_ALGO": "Ring"},
        {"engine": "sglang", "flags": ["--enable-deterministic-inference"]},
        "NCCL016",
        "allreduce:tree",
    ),
    ({"NCCL_PROTO": "LL", "VLLM_BATCH_INVARIANT": "1"}, {"engine": "vllm"}, "NCCL016", "Simple"),
    ({"NCCL_CUMEM_ENABLE": "1"}, {"engine": "sglang", "engine_version": "0.5.1"}, "NCCL016", "sets it to 0"),
    # memory
    ({"NCCL_BUFFSIZE": "67108864", "NCCL_MAX_CTAS": "64", "NCCL_P2P_DISABLE": "1"},
     {"tensor_parallel": 8}, "NCCL019", "34.6 GiB of shared host memory"),
    # rules that are data
    ({"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "SYS"}, {}, "NCCL101", "never looked at"),
    ({"NCCL_BUFFSIZE": "16777216", "NCCL_PROTO": "LL"}, {}, "NCCL102", "no timing"),
    ({"NCCL_NTHREADS": "512", "NCCL_PROTO": "ll"}, {}, "NCCL103", "changes nothing"),
    ({"NCCL_LL_BUFFSIZE": "1048576", "NCCL_PROTO": "Simple"}, {}, "NCCL104", "turns LL off"),
    ({"NCCL_LL128_NTHREADS": "320", "NCCL_PROTO": "^LL128"}, {}, "NCCL105", "turns LL128 off"),
    ({"NCCL_MIN_NCHANNELS": "32", "NCCL_MAX_NCHANNELS": "16"}, {}, "NCCL106", "does not hold"),
    ({"NCCL_MIN_CTAS": "32", "NCCL_MAX_CTAS": "16"}, {}, "NCCL107", "uses 16 for both"),
    ({"NCCL_MAX_CTAS": "32", "NCCL_MAX_NCHANNELS": "16"}, {}, "NCCL108", "lower one wins"),
    ({"NCCL_MIN_CTAS": "32", "NCCL_MIN_NCHANNELS": "16"}, {}, "NCCL109", "higher one wins"),
    ({"NCCL_MAX_NRINGS": "8", "NCCL_MAX_NCHANNELS": "16"}, {}, "NCCL110", "NCHANNELS"),
    ({"NCCL_SHM_DISABLE": "1", "NCCL_P2P_DISABLE": "1"}, {}, "NCCL111", "sockets"),
    ({"NCCL_SHM_DISABLE": "1", "NCCL_P2P_LEVEL": "LOC"}, {}, "NCCL111", "sockets"),
    ({"NCCL_P2P_DISABLE": "1"}, TWO, "NCCL112", "--disable-custom-all-reduce"),
    ({"NCCL_P2P_LEVEL": "NVL"}, TWO, "NCCL112", "--disable-custom-all-reduce"),
    ({}, {**TWO, "compute_capability": "12.0"}, "NCCL113", "--disable-custom-all-reduce"),
    ({"NCCL_PROTO": "LL"}, {}, "NCCL114", "6609"),
    ({"NCCL_PROTO": "allreduce:LL"}, {}, "NCCL114", "every size"),
    ({"NCCL_PROTO": "LL,LL128,Simple"}, PCIE, "NCCL115", "corrupt"),
    ({"NCCL_PROTO": "^LL"}, PCIE, "NCCL115", "corrupt"),
    ({"NCCL_PROTO": "LL,LL128,Simple"}, {**PCIE, "nccl_version": "2.31.2"}, "NCCL116", "no longer"),
    ({"NCCL_NVLS_ENABLE": "1"}, PCIE, "NCCL117", "multicast"),
    ({"NCCL_DEBUG_FILE": "/x"}, {}, "NCCL118", "logs nothing"),
    ({"NCCL_DEBUG": "warn", "NCCL_DEBUG_SUBSYS": "TUNING"}, {}, "NCCL119", "INFO"),
    ({"NCCL_IB_DISABLE": "1", "NCCL_IB_TC": "106"}, {}, "NCCL120", "off"),
    ({"NCCL_NET": "socket", "NCCL_IB_HCA": "mlx5"}, {}, "NCCL120", "off"),
    ({"NCCL_IB_GID_INDEX": "3", "NCCL_IB_ROCE_VERSION_NUM": "2"}, {}, "NCCL121", "nothing is left"),
    ({"NCCL_OOB_NET_IFNAME": "eth0"}, {}, "NCCL122", "NCCL_OOB_NET_ENABLE=1"),
    ({"NCCL_RAS_ENABLE": "0", "NCCL_RAS_ADDR": "localhost:1"}, {}, "NCCL123", "off"),
    ({"NCCL_TUNER_CONFIG_FILE": "/x.csv"}, {}, "NCCL124", "NCCL_TUNER_PLUGIN"),
    ({"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}, {}, "NCCL125", "64"),
    ({"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "0"}, {}, "NCCL126", "fails"),
    ({"NCCL_GRAPH_STREAM_ORDERING": "0", "NCCL_GRAPH_MIXING_SUPPORT": "1"}, {}, "NCCL127", "support"),
    ({"NCCL_CUMEM_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "1"}, {}, "NCCL128", "/dev/shm"),
    ({"NCCL_IGNORE_DISABLED_P2P": "2"}, {}, "NCCL129", "without an error"),
    ({"NCCL_GRAPH_FILE": "/g.xml", "NCCL_MIN_CTAS": "8"}, {}, "NCCL130", "repeat"),
    ({"NCCL_IB_TIMEOUT": "0"}, {}, "NCCL131", "infinite"),
    ({"NCCL_TUNER_PLUGIN": "/x.so", "NCCL_PROTO": "LL"}, {}, "NCCL132", "only among"),
]  # fmt: skip


@pytest.mark.failure("3.8")
@pytest.mark.parametrize(
    ("environment", "facts", "identifier", "words"),
    CASES,
    ids=[f"{case[2]}-{n}" for n, case in enumerate(CASES)],
)
def test_finds(environment: dict[str, str], facts: dict[str, Any], identifier: str, words: str) -> None:
    found = [f for f in linter.lint(environment, Facts.model_validate(facts)) if f.id == identifier]
    assert found, "nothing found"
    assert any(words in finding.message + finding.suggestion for finding in found)
    assert all(finding.source and finding.suggestion for finding in found)


def test_every_check_and_rule_is_tried() -> None:
    book = rules.book()
    assert {case[2] for case in CASES} == book.checks.keys() | book.rules.keys()


@pytest.mark.parametrize(
    ("environment", "facts"),
    [
        ({}, {}),
        ({"PATH": "/bin", "HOME": "/root"}, PCIE),
        ({"NCCL_P2P_LEVEL": "SYS", "NCCL_DEBUG": "info", "NCCL_DEBUG_SUBSYS": "^NET,coll"}, PCIE),
        ({"NCCL_PROTO": "ll,simple", "NCCL_ALGO": "ring,tree"}, PCIE),
        ({"NCCL_ALGO": "ring;allreduce:ring,tree"}, {**PCIE, "nccl_version": "2.24.3"}),
        ({"NCCL_BUFFSIZE": "0x1000000", "NCCL_NTHREADS": "128"}, PCIE),
        ({"NCCL_MIN_CTAS": "32", "NCCL_MAX_CTAS": "32"}, {**PCIE, "nccl_version": "2.24.3"}),
        ({"NCCL_P2P_DISABLE": "0"}, {**TWO, "compute_capability": "9.0"}),
        ({"NCCL_P2P_DISABLE": "1"}, {**TWO, "tensor_parallel": 4, "compute_capability": "12.0"}),
        ({"NCCL_P2P_DISABLE": "1"}, {**NO_CUSTOM, "compute_capability": "12.0"}),
        ({"NCCL_P2P_DISABLE": "1"}, {**TWO, "flags": None}),  # arguments unknown: say nothing
        ({"NCCL_P2P_DISABLE": "1"}, {**TWO, "flags": ["--disable_custom_all_reduce=true"]}),
        ({"NCCL_NVLS_ENABLE": "1"}, {"interconnect": "nvlink"}),
        ({"NCCL_CUMEM_ENABLE": "1"}, {"engine": "sglang", "engine_version": "0.5.23"}),
        ({"NCCL_INSPECTOR_ENABLE": "1"}, {}),
        ({"NCCL_CTA_POLICY": "2"}, {}),
        ({"NCCL_IB_DISABLE": "1"}, {}),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "8"}, {"engine": "sglang"}),
        ({"NCCL_DEBUG_LEVELS": "WARN"}, {}),  # too new, but the version is unknown
        ({"NCCL_CTA_POLICY": "DEFAULT|ZERO"}, {}),
    ],
)
def test_says_nothing_about_good_settings(environment: dict[str, str], facts: dict[str, Any]) -> None:
    assert linter.lint(environment, Facts.model_validate(facts)) == []


@pytest.mark.parametrize(
    ("environment", "facts", "no_effect"),
    [
        ({"NCCL_MAX_CTAS": "0"}, {}, True),
        ({"NCCL_MAX_NCHANNELS": "0"}, {"nccl_version": "2.16.5"}, False),
        ({"NCCL_P2P_LEVEL": "NODE"}, {}, True),
        ({"NCCL_P2P_LEVEL": "3"}, {}, False),
        ({"NCCL_P2P_DISABLE": "2"}, {}, True),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,FOO"}, {"nccl_version": "2.28.9"}, False),
        ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "FOO"}, {"nccl_version": "2.28.9"}, True),
    ],
)
def test_what_has_no_effect(environment: dict[str, str], facts: dict[str, Any], no_effect: bool) -> None:
    found = linter.lint(environment, Facts.model_validate(facts))
    assert [finding.no_effect for finding in found] == [no_effect]


def test_sglang_puts_host_buffers_into_dev_shm() -> None:
    environment = {row.variable: row.value for row in profiles.resolve("pcie-throughput")}
    for engine, named in (("sglang", True), ("vllm", False)):
        found = linter.lint(environment, Facts(tensor_parallel=8, engine=engine))  # type: ignore[arg-type]
        (memory,) = [finding for finding in found if finding.id == "NCCL019"]
        assert ("/dev/shm" in memory.message) is named


def test_the_six_on_the_host_they_came_from() -> None:
    facts = Facts(interconnect="pcie", compute_capability=(12, 0), tensor_parallel=8, nccl_version=(2, 28, 9))
    found = linter.lint(SIX, facts)
    assert {f.id for f in found} == {"NCCL003", "NCCL019", "NCCL102", "NCCL103", "NCCL114"}
    assert {f.variable for f in found if f.no_effect} == {"NCCL_BUFFSIZE", "NCCL_NTHREADS"}
    assert not [f for f in found if f.severity == "error"]


@pytest.mark.parametrize("name", ["pcie-throughput", "nvlink-default"])
def test_built_in_profiles_have_no_errors(name: str) -> None:
    environment = {row.variable: row.value for row in profiles.resolve(name)}
    facts = {**PCIE, "interconnect": profiles.get(name).topology, "tensor_parallel": 8}
    found = linter.lint(environment, Facts.model_validate(facts))
    assert [finding for finding in found if finding.severity == "error"] == []


def test_worst_first() -> None:
    environment = {**SIX, "NCCL_FOOO": "1", "NCCL_IB_HCA": "x"}
    order = [finding.severity for finding in linter.lint(environment, Facts(nodes=1))]
    assert order == sorted(order, key=["error", "warning", "info"].index)


def _of_file(text: str) -> list[Finding]:
    entries = sources.conf_file(text, "/etc/nccl.conf")
    return linter.lint(
        {entry.name: entry.value for entry in entries}, None, {entry.name: entry.origin for entry in entries}
    )


def test_findings_carry_file_and_line() -> None:
    (finding,) = _of_file("\nNCCL_P2P_LEVEL=sys\n")
    assert finding.location == Location("/etc/nccl.conf", 2)
    assert (finding.as_dict()["file"], finding.as_dict()["line"]) == ("/etc/nccl.conf", 2)


def test_spaces_around_the_sign_in_a_file_are_reported() -> None:
    (finding,) = _of_file("NCCL_PROTO = LL\n")
    assert (finding.id, finding.suggestion[:19]) == ("NCCL014", "write NCCL_PROTO=LL")


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(sorted(registry.variables())) | st.text(max_size=8).map("NCCL_".__add__),
        st.text(max_size=8) | st.sampled_from(["LL", "^LL", "Ring", "16M", "016", "SYS", "1", "0", "-1"]),
        max_size=6,
    ),
    st.sampled_from(["pcie", "nvlink", None]),
    st.sampled_from(["2.18.1", "2.24.3", "2.28.9", "2.31.2", None]),
    st.sampled_from(["vllm", "sglang", None]),
)
def test_any_environment_is_linted(environment: dict[str, str], interconnect: Any, nccl: Any, engine: Any) -> None:
    facts = Facts(interconnect=interconnect, nccl_version=nccl, engine=engine, tensor_parallel=2, nodes=1)
    for finding in linter.lint(environment, facts):
        assert finding.message
        assert finding.suggestion
        assert finding.as_dict()["id"] == finding.id
