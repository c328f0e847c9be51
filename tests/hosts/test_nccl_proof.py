"""The proof of NCCL's settings: what a rank really saw and did decides, and no later start runs with NCCL's log on."""

from __future__ import annotations

import json
import time

import pytest

from tests.hosts.commands import Library, invocation, rendered, servewright, service

SIX = {
    "NCCL_ALGO": "Ring",
    "NCCL_BUFFSIZE": "16777216",
    "NCCL_MAX_NCHANNELS": "16",
    "NCCL_NTHREADS": "512",
    "NCCL_P2P_LEVEL": "SYS",
    "NCCL_PROTO": "LL",
}


def two_ranks(nccl=None, environment=None, engine="vllm", proof="verify", **changes):
    """The release of a service with two ranks that loads within a second."""
    declared = service(
        engine,
        **{
            "gpus": [0, 1],
            "parallelism": {"tensor": 2},
            "options": {"disable_custom_all_reduce": True},
            "environment": {"SIM_LOAD_SECONDS": "0.2", "SIM_LIFE_SCALE": "0.1", **(environment or {})},
            "nccl": {"proof": proof},
            **changes,
        },
    )
    return rendered(declared, SIX if nccl is None else nccl)


@pytest.fixture(scope="module")
def library(testbed, simulator):
    """One host, on which a release with the six settings is committed before and after each test."""
    host = testbed.boot("gpu1", prepare=simulator)
    found = Library(host)
    yield found
    testbed.destroy(host)


@pytest.fixture
def committed(library):
    result = library.deploy(two_ranks())
    assert result["verdict"] in ("committed", "unchanged"), result
    return library


def gate_of(result, gates="gates"):
    (found,) = [gate for gate in result[gates] if gate["id"] == "nccl"]
    return found


def proof_of(library, number):
    return json.loads((library.host.root / f"var/lib/servewright/kimi/nccl/{number}.json").read_text())


def debug_variables(library):
    """NCCL's log variables in the main process."""
    pid = library.host.run("systemctl show kimi -p MainPID --value").stdout.strip()
    words = library.host.run(f"cat /proc/{pid}/environ").stdout.split("\0")
    return {word.partition("=")[0] for word in words if word.startswith("NCCL_DEBUG")}


def wait_for_new_start(library, before):
    end = time.monotonic() + 60
    while invocation(library.host) == before or library.call("verify", "kimi")["verdict"] != "ok":
        assert time.monotonic() < end, library.host.run("systemctl status kimi", check=False).stdout
        time.sleep(0.5)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_rank_is_proved_and_a_crash_starts_without_the_log(library, engine):
    release = two_ranks(engine=engine)
    result = library.deploy(release)
    assert result["verdict"] == "committed", result
    gate = gate_of(result)
    assert gate["verdict"] == "passed"
    assert "2 ranks: NCCL 2.28.9, 16 channels; P2P/CUMEM x32; RING/LL; 6 declared settings in force" in gate["message"]

    proof = proof_of(library, result["release"])
    assert [rank["rank"] for rank in proof["ranks"]] == [0, 1]
    for rank in proof["ranks"]:
        assert rank["variables"] == SIX
        (connection,) = rank["connections"]
        assert (connection["to"], connection["via"]) == (1 - rank["rank"], "P2P/CUMEM")
        assert connection["channels"] == "0-15"
    assert {(c["function"], c["bytes"], c["algorithm"], c["protocol"]) for c in proof["choices"]} >= {
        ("AllReduce", 14336, "RING", "LL"),
        ("AllReduce", 58720256, "RING", "LL"),
    }
    (loaded,) = proof["libraries"]
    on_host = library.host.run(f"sha256sum {loaded['path']}").stdout.split()[0]
    assert (loaded["sha256"], len(loaded["pids"])) == (on_host, 2)

    # The process has the log on; that is the transaction's doing, and no reason to restart it.
    assert debug_variables(library) == {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}
    assert not (library.host.root / "run/servewright/kimi.nccl").exists()
    # Whatever NCCL goes on to write, it takes 32 MiB at most, and no other process sees it.
    pid = library.host.run("systemctl show kimi -p MainPID --value").stdout.strip()
    room = library.host.run(f"nsenter -t {pid} -m df --output=size,fstype /run/servewright/nccl").stdout
    assert room.split()[-2:] == ["32768", "tmpfs"]
    assert library.host.run("ls /run/servewright/nccl").stdout == ""
    assert library.deploy(release)["verdict"] == "unchanged"
    assert gate_of(library.call("verify", "kimi"))["verdict"] == "passed"

    before = invocation(library.host)
    library.host.run("systemctl kill --kill-who=main -s KILL kimi")
    wait_for_new_start(library, before)
    assert debug_variables(library) == set()
    again = gate_of(library.call("verify", "kimi"))
    assert (again["verdict"], "not this start" in again["message"]) == ("passed", True), again
    assert library.deploy(release)["verdict"] == "unchanged"


WRONG = [
    (
        {"nccl": {}, "environment": {"SIM_CHILD_ENV_DROP": "NCCL_"}},
        "no process of the service wrote /run/servewright/nccl/%h.%p: see that NCCL's variables reach the ranks",
    ),
    ({"nccl": {**SIX, "NCCL_P2P_LEVEL": "NODE"}}, "NCCL_P2P_LEVEL=NODE was ignored: NCCL knows no such level"),
    (
        {"nccl": {**SIX, "NCCL_PROTO": "Simple"}},
        "AllReduce ran with RING/LL, which NCCL_PROTO=Simple does not allow (at 4, 14336, 58720256 bytes)",
    ),
    (
        {"environment": {"SIM_NCCL_LOG": "2.30.7/default"}},
        "NCCL_ALGO=Ring was not seen (every rank)",
    ),
    ({"environment": {"SIM_NCCL_CUT": "set by environment"}}, "was not seen (every rank)"),
    ({"environment": {"SIM_NCCL_LOG": "empty"}}, "The file holds no line of NCCL."),
]


@pytest.mark.failure("3.10")
@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[row[1][:50] for row in WRONG])
def test_3_10_a_start_that_did_something_else_is_rolled_back(committed, changes, message):
    result = committed.deploy(two_ranks(**changes))
    assert result["verdict"] == "rolled_back", result
    assert message in result["message"], result["message"]
    assert gate_of(result, "rollback_gates")["verdict"] == "passed"
    assert "Traceback" not in str(result)


def test_ranks_with_different_libraries_are_named(committed):
    committed.host.run("cp /etc/os-release /opt/libnccl.so.2.1")
    result = committed.deploy(two_ranks(environment={"SIM_NCCL_LIBRARY": "/opt/libnccl.so.2.1"}))
    assert result["verdict"] == "rolled_back", result
    assert "the ranks use different NCCL libraries" in result["message"]
    assert "/opt/libnccl.so.2.1 (SHA-256 " in result["message"]


@pytest.mark.failure("3.1")
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"SIM_NCCL_HANG": "1"},
            "NCCL's start hangs: Rank 0 of 2 began to start a communicator and never ended. See which",
        ),
        (
            {"SIM_STALL_AT": "0"},
            "NCCL's communicators are complete. If nothing moves since, its first call hangs: check that the IOMMU",
        ),
    ],
)
def test_a_start_that_hangs_is_named_and_not_waited_for(committed, environment, message):
    verify = {"stable": 0.5, "load_timeout": 30, "stall_timeout": 3, "request_timeout": 5}
    result = committed.deploy(two_ranks(environment=environment, verify=verify))
    assert result["verdict"] == "rolled_back", result
    assert message in result["message"]


def test_the_log_can_be_on_at_every_start(committed):
    release = two_ranks(proof="always")
    result = committed.deploy(release)
    assert result["verdict"] == "committed", result
    before = invocation(committed.host)
    committed.host.run("systemctl kill --kill-who=main -s KILL kimi")
    wait_for_new_start(committed, before)
    gate = gate_of(committed.call("verify", "kimi"))
    assert "6 declared settings in force" in gate["message"]
    assert proof_of(committed, result["release"])["invocation"] == invocation(committed.host)
    assert committed.deploy(release)["verdict"] == "unchanged"


def test_what_a_settings_file_adds_is_named(committed):
    committed.host.run("echo NCCL_P2P_DISABLE=1 > /etc/nccl.conf")
    try:
        result = committed.deploy(two_ranks({}, {"TEST_MARK": "file"}))
    finally:
        committed.host.run("rm /etc/nccl.conf")
    assert result["verdict"] == "committed", result
    (named,) = gate_of(result)["evidence"]["undeclared"]
    assert named == {"name": "NCCL_P2P_DISABLE", "value": "1", "source": "/etc/nccl.conf"}


def test_a_proof_is_compared_with_the_one_before(committed):
    result = committed.deploy(two_ranks({**SIX, "NCCL_P2P_DISABLE": "1"}))
    assert result["verdict"] == "committed", result
    changes = {c["field"]: (c["old"], c["new"]) for c in gate_of(result)["evidence"]["changes"]}
    assert changes["channels"] == ("16", "4")
    assert changes["transports"] == ("P2P/CUMEM x32", "SHM/direct/direct x8")
    assert f"against release {result['previous']}: channels 16 -> 4" in gate_of(result)["message"]

    back = committed.settle(committed.call("rollback", "kimi", None, "tester", "", 0))
    assert back["verdict"] == "committed", back
    changes = {c["field"]: (c["old"], c["new"]) for c in gate_of(back)["evidence"]["changes"]}
    assert changes["transports"] == ("SHM/direct/direct x8", "P2P/CUMEM x32")


def test_own_log_settings_win_and_are_enough(committed):
    own = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALL", "NCCL_DEBUG_FILE": "/tmp/nccl.%p"}
    result = committed.deploy(two_ranks({**SIX, **own}))
    assert result["verdict"] == "committed", result
    assert proof_of(committed, result["release"])["ranks"][0]["file"].startswith("/tmp/nccl.")


def test_one_gpu_has_nothing_to_prove(committed):
    release = two_ranks(gpus=[0], parallelism={"tensor": 1})
    assert "nccl" not in release["unit"].split("# Engine")[1]
    result = committed.deploy(release)
    assert result["verdict"] == "committed", result
    assert gate_of(result)["message"] == "one GPU or none: nothing to prove"
    assert debug_variables(committed) == set()


def test_the_stored_proof_is_shown(committed, inventory):
    done = servewright("nccl", "proof", "kimi", "-i", str(inventory([committed.host])))
    assert done.code == 0, done.text
    assert [rank["variables"] for rank in done.service()["proof"]["ranks"]] == [SIX, SIX]
