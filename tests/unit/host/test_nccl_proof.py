"""The proof of a start: which files and libraries of which processes, what is kept, what differs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import (
    difference,
    releases,
    retention,
    transaction,
    truth,
)
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import HostError
from ansible_collections.servewright.llm.plugins.module_utils.host.nccl import compare, debug, library, log, proof
from servewright.release.render import render
from servewright.spec import validate
from servewright.spec.problems import InvalidError
from tests.unit.host.test_nccl_expect import RECORDINGS, SIX
from tests.unit.host.test_releases import TEMPLATES
from tests.unit.spec.samples import service

TWO = {"gpus": [0, 1], "parallelism": {"tensor": 2}}
HOLD = """
import mmap, os, sys
kept = [open(path, "rb") for path in sys.argv[2:]]
maps = [mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) for f in kept if "libnccl" in f.name]
log = sys.argv[1].replace("%p", str(os.getpid())).replace("%h", "host")
if log:
    kept.append(open(log, "w"))
    kept[-1].write(sys.stdin.read())
    kept[-1].flush()
print("ready", flush=True)
import time
time.sleep(600)
"""


def release(settings=None, **changes):
    """The release of a service on two GPUs with these NCCL settings."""
    (valid,) = validate.services([service(**{**TWO, **changes})])
    return render(valid, settings or {}, TEMPLATES)


@contextmanager
def process(log_path, text="", *files):
    """A process that maps files and has a log open; gives its id."""
    argv = [sys.executable, "-c", HOLD, str(log_path), *map(str, files)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            running.stdin.write(text)
            running.stdin.close()
            assert running.stdout.readline() == "ready\n"
            yield running.pid
        finally:
            running.kill()


def recording(name, rank, ranks=None):
    text = (RECORDINGS / "2.28.9" / f"{name}.rank{rank}.log").read_text()
    return text.replace("nranks 2 ", f"nranks {ranks} ") if ranks else text


def seen(*texts, pattern="/x/%h.%p"):
    ranks = [(number, log.parse(text, f"/x/host.{number}")) for number, text in enumerate(texts)]
    made = [(pid, one) for pid, one in ranks if any(comm.ranks > 1 for comm in one.communicators)]
    return {"pids": [], "logs": [one for _pid, one in ranks], "ranks": made, "trouble": [], "pattern": pattern}


def judged(found, environment=None, **changes):
    return proof.judge(release(environment, **changes), found)


def test_only_the_file_a_process_has_open_is_its_log(tmp_path):
    """A file of an earlier start lies beside it, and a child has inherited its parent's: neither is a rank's own."""
    pattern = str(tmp_path / "%h.%p")
    (tmp_path / "host.1").write_text(recording("default", 0))
    with process(pattern, recording("pcie-ll-ring", 0)) as pid, process("", "", tmp_path / f"host.{pid}") as child:
        (tmp_path / f"host.{child}").write_text("an older file")
        (found,), trouble = proof.logs([pid, child], pattern)
    assert (found[0], found[1].file, trouble) == (pid, str(tmp_path / f"host.{pid}"), [])
    assert found[1].settings["NCCL_PROTO"].value == "LL"


def test_a_log_that_was_deleted_is_still_read(tmp_path):
    pattern = str(tmp_path / "a+b%%.%p")
    with process(pattern.replace("%%", "%"), recording("default", 0)) as pid:
        os.unlink(tmp_path / f"a+b%.{pid}")
        (found,), _trouble = proof.logs([pid], pattern)
    assert found[1].version == "2.28.9"


def test_libraries_are_told_by_content(tmp_path):
    """Two files of one name, one content shared by two processes, one file deleted."""
    paths = [tmp_path / name / "libnccl.so.2" for name in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(path.parent.name.encode() * 5000)
    (tmp_path / "libnccl-net.so").write_bytes(b"a plugin")
    with process("", "", paths[0], tmp_path / "libnccl-net.so") as one, process("", "", paths[1]) as two:
        shutil.copy(paths[1], tmp_path / "new")
        os.replace(tmp_path / "new", paths[1])
        found = library.loaded([one, two, 1 << 22])
        wrong, notes = library.differing(found, [one, two])
        alone = library.differing(found, [one])
    assert [(entry["path"], entry["pids"], entry["deleted"]) for entry in found] == [
        (str(paths[0]), [one], False),
        (str(paths[1]), [two], True),
    ]
    assert found[0]["sha256"] == hashlib.sha256(b"a" * 5000).hexdigest()
    assert "the ranks use different NCCL libraries" in wrong[0]
    assert str(paths[1]) in notes[0]
    assert "replaced on disk" in notes[0]
    assert alone[0] == []


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "no process of the service wrote /x/%h.%p"),
        ([""], "The file holds no line of NCCL. (/x/host.0): set NCCL_DEBUG=INFO"),
        (["Loading weights\n"], "The file holds no line of NCCL."),
        ([recording("default", 0)[:3000]] * 2, "began to start a communicator and never ended"),
        ([recording("default", 0).partition("ncclCommInit")[0]], "No communicator was started."),
        ([recording("default", 0)], "1 of 2 ranks wrote a log (missing: rank 1)"),
    ],
)
def test_a_log_that_proves_nothing_has_a_name(texts, message):
    failures, _warnings = judged(seen(*texts))
    assert len(failures) >= 1
    assert message in failures[0]


def test_any_cut_of_a_log_is_judged():
    text = recording("pcie-ll-ring", 0)
    for end in range(0, len(text), 997):
        failures, _warnings = judged(seen(text[:end], recording("pcie-ll-ring", 1)), SIX)
        assert all(failures)
    assert judged(seen(text, recording("pcie-ll-ring", 1)), SIX) == ([], [])


def test_a_service_that_cannot_be_started_leaves_no_log_switched_on(root, monkeypatch):
    """The switch is there while systemd reads it, and gone however the start ended."""
    switch, during = root / "run/tiny.nccl", []

    def start(unit, timeout):
        during.append(switch.read_text())
        raise HostError("systemd could not start it")

    monkeypatch.setattr(transaction.systemd, "start", start)
    with pytest.raises(HostError):
        transaction._load(None, release(), 1)
    assert during == [
        'NCCL_DEBUG="INFO"\n'
        'NCCL_DEBUG_FILE="/run/servewright/nccl/%h.%p"\n'
        'NCCL_DEBUG_SUBSYS="INIT,ENV,GRAPH,TUNING,P2P,SHM,NET"\n'
    ]
    assert not switch.exists()


def test_a_killed_transaction_leaves_no_log_switched_on(root, monkeypatch):
    """Killed between the switch and the start; what finishes it takes the switch away, whatever the verdict."""
    monkeypatch.setattr(transaction, "stop", lambda *arguments, **options: None)
    monkeypatch.setattr(transaction.systemd, "run", lambda argv, **options: None)
    number = releases.stage(release(), "")
    facts = {"release": number, "previous": None, "restart": True, "displaces": [], "command": "deploy"}
    transaction.begin("tiny", requester="tester", **facts)
    proof.switch_on(release())
    assert (root / "run/tiny.nccl").exists()
    transaction.recover("tiny")
    assert not (root / "run/tiny.nccl").exists()


def test_a_proof_goes_with_its_release(root):
    numbers = [releases.stage(release(description=str(n), keep={"releases": 1}), "") for n in range(4)]
    for number in numbers:
        proof.store("tiny", number, {"time": "now"})
    releases.commit("tiny", numbers[-1], numbers[-1])
    retention.prune("tiny")
    assert proof.numbers("tiny") == releases.numbers("tiny")
    assert len(proof.numbers("tiny")) < 4


def test_what_every_rank_shows_is_said_once():
    failures, _warnings = judged(seen(recording("default", 0), recording("default", 1)), SIX)
    assert [text for text in failures if "NCCL_PROTO=LL was not seen" in text] == [
        "NCCL_PROTO=LL was not seen (every rank): find out what takes it away between the unit and the rank, such as "
        "Ray or a wrapper"
    ]
    failures, _warnings = judged(seen(recording("pcie-ll-ring", 0), recording("default", 1)), SIX)
    assert any("NCCL_PROTO=LL was not seen (rank 1)" in text for text in failures)


def test_data_parallel_ranks_need_no_communicator():
    alone = {"parallelism": {"data": 2}}
    assert judged(seen(), **alone) == ([], [])
    assert proof.wanted(release(**alone))


def test_a_release_of_an_earlier_version_wants_no_proof():
    old = release()
    del old["proof"]
    assert not proof.wanted(old)


def test_differences_of_two_proofs():
    state = {"InvocationID": "i"}
    one, two = (
        proof.document(release(settings), 1, state, seen(recording(name, 0), recording(name, 1)))
        for name, settings in (("default", {}), ("p2p-disabled-pcie-ll-ring", SIX))
    )
    assert compare.between(one, one) == []
    found = {change["field"]: (change["old"], change["new"]) for change in compare.between(one, two)}
    assert found["channels"] == ("24", "4")
    assert found["transports"] == ("P2P/CUMEM x48", "SHM/direct/direct x8")
    assert found["AllReduce of 58720256 bytes"] == ("RING/SIMPLE", "RING/LL")
    assert found["variable NCCL_PROTO"] == (None, "LL")
    assert "AllReduce of 14336 bytes" not in found  # the same in both
    assert "version" not in found


def test_spans():
    assert proof.spans({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8"


def test_what_a_transaction_set_for_its_log_is_no_difference(monkeypatch):
    declared = release()
    running = {**declared["environment"], **debug.VARIABLES}
    monkeypatch.setattr(truth.proc, "environment", lambda pid: running)
    assert truth.environment(declared, 1) == []
    running["NCCL_DEBUG_FILE"] = "/tmp/mine"  # somebody else's, such as a drop-in's
    assert {item["field"] for item in truth.environment(declared, 1)} == {
        "environment.NCCL_DEBUG", "environment.NCCL_DEBUG_FILE", "environment.NCCL_DEBUG_SUBSYS",
    }  # fmt: skip


def test_a_proof_asked_for_later_restarts_nothing():
    changes = difference.between(release(nccl={"proof": "off"}), release())
    assert {change["consequence"] for change in changes} == {"reload"}
    changes = difference.between(release(), release(shared_memory="private", shared_memory_size="1G"))
    assert {change["field"]: change["consequence"] for change in changes} == {
        "unit Service.TemporaryFileSystem": "restart"
    }


def test_units_of_the_three_modes():
    units = {mode: release(nccl={"proof": mode})["unit"] for mode in ("verify", "always", "off")}
    assert "EnvironmentFile=-/run/servewright/tiny.nccl\n" in units["verify"]
    assert "NCCL_DEBUG" not in units["verify"]
    assert 'Environment="NCCL_DEBUG_FILE=/run/servewright/nccl/%%h.%%p"' in units["always"]
    assert "tiny.nccl" not in units["always"]
    assert "nccl" not in units["off"].split("# Engine")[1]
    assert release(nccl={"proof": False})["proof"]["mode"] == "off"  # off without quotes is a boolean in YAML


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"NCCL_DEBUG": "WARN"}, "at level WARN NCCL does not log its settings"),
        ({"NCCL_DEBUG_SUBSYS": "INIT,ENV"}, "it leaves out TUNING"),
        ({"NCCL_DEBUG_SUBSYS": "^ENV"}, "it leaves out ENV"),
        ({"NCCL_DEBUG_FILE": "/tmp/log"}, "without %p every rank writes over the same file"),
        ({"NCCL_DEBUG": "info", "NCCL_DEBUG_SUBSYS": "ALL", "NCCL_DEBUG_FILE": "/tmp/%p"}, None),
        ({"NCCL_DEBUG_SUBSYS": "^NET"}, None),
    ],
)
def test_own_log_settings_are_enough_or_refused(own, message):
    declared = service(**TWO, options={"disable_custom_all_reduce": True}, nccl={"environment": own})
    if message is None:
        validate.services([declared])
    else:
        with pytest.raises(InvalidError) as error:
            validate.services([declared])
        (problem,) = error.value.problems
        assert (message in problem.message, problem.path[-1]) == (True, next(iter(own)))
    declared["nccl"]["proof"] = "off"
    validate.services([declared])
    assert debug.missing(own).keys() == debug.VARIABLES.keys() - own.keys()
