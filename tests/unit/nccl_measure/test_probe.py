"""The probe in a process of its own, over a stand-in for torch: what it measures, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from servewright.nccl.measure import cases, record

FAKE = Path(__file__).parent / "fake_torch"
PROBE = """
import json, sys
from pathlib import Path
from servewright.nccl.measure import probe
from servewright.nccl.measure.cases import Case, Job, Trial

def case(trials, **given):
    return Case(trials={name: Trial(**trial) for name, trial in trials.items()}, **given)

given, target = json.loads(sys.argv[1]), Path(sys.argv[2])
gangs = ([case(**one) for one in gang] for gang in given["gangs"])
probe.write(target, probe.Session(Job(**given["job"])).measure(gangs, lambda partial: probe.write(target, partial)))
"""


def _environment(**extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "FAKE_"))}
    return {**kept, "PYTHONPATH": str(FAKE), "FAKE_GPUS": "H200,H200", **extra}


def _run(given: str, **extra: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "result.json"
        command = [sys.executable, "-c", PROBE, given, target]
        done = subprocess.run(
            command, capture_output=True, text=True, env=_environment(**extra), timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        result: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
        return result


def _job(*measured: cases.Case, gang: int = 1, **changes: Any) -> str:
    job = cases.Job(**{"ranks": 2, "dtype": "float32", "sizes": (64, 256), "repeats": 3, "timeout": 20, **changes})
    rows = [asdict(case) for case in measured]
    gangs = [rows[at : at + gang] for at in range(0, len(rows), gang)]
    return json.dumps({"job": {**asdict(job), "calls": 2}, "gangs": gangs})


def _fault(name: str, **extra: Any) -> dict[str, Any]:
    (case,) = _run(_job(cases.Case("case", {"FAKE_FAULT": name}), **extra))["cases"]
    assert case["status"] == "failed"
    found: dict[str, Any] = case["diagnosis"]
    return found


@pytest.mark.parametrize("rehearsal", [False, True])
def test_every_collective_is_timed_and_checked(rehearsal: bool) -> None:
    result = _run(_job(cases.Case("nothing set"), collectives=cases.COLLECTIVES, rehearsal=rehearsal))
    read = record.read(json.dumps(result))
    assert read.rehearsal == rehearsal
    assert {(timing.collective, timing.bytes) for timing in read.timings} == {
        (name, size) for name in cases.COLLECTIVES for size in (64, 256)
    }
    assert all(timing.correct and 0 < timing.p10 <= timing.median <= timing.p90 for timing in read.timings)
    row = result["cases"][0]["results"][0]
    # Two ranks: of an all-reduce every byte crosses once, of the others half of them.
    assert row["bus_gb_per_s"] == pytest.approx(row["bytes"] / row["median_us"] / 1e3, abs=1e-3)


def test_each_case_sees_its_environment_and_no_other(tmp_path: Path) -> None:
    job = _job(
        cases.Case("one", {"NCCL_PROTO": "LL"}, {"NCCL_TUNER_CONFIG_FILE": "a table\n"}),
        cases.Case("two", {"NCCL_NVLS_ENABLE": "0"}),
    )
    result = _run(job, NCCL_ALGO="Tree", NCCL_NVLS_ENABLE="1")
    one, two = (case["effective"] for case in result["cases"])
    assert one["NCCL_PROTO"] == "LL"
    assert "NCCL_TUNER_CONFIG_FILE" in one
    assert "NCCL_PROTO" not in two
    assert "NCCL_ALGO" not in one, "the environment of whoever starts the probe must not be measured"
    assert two["NCCL_NVLS_ENABLE"] == "0"


def test_what_is_held_stays_and_what_is_for_speed_does_not() -> None:
    result = _run(_job(cases.Case("nothing set")), NCCL_NVLS_ENABLE="0", NCCL_P2P_DISABLE="1", NCCL_PROTO="LL")
    effective = result["cases"][0]["effective"]
    assert (effective["NCCL_NVLS_ENABLE"], effective["NCCL_P2P_DISABLE"]) == ("0", "1")
    assert "NCCL_PROTO" not in effective


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("init hang", "initialisation-hang"),
        ("first hang", "first-collective-hang"),
        ("first wrong", "wrong-data"),
        ("late hang", "hang"),
        ("memory", "out-of-memory"),
        ("garbage", "wrong-data"),
        ("crash", "rank-failed"),
    ],
)
def test_a_fault_has_a_name_and_something_to_do(fault: str, name: str) -> None:
    began = time.monotonic()
    found = _fault(fault, timeout=2 if "hang" in fault else 20)
    assert found["name"] == name
    assert found["to_do"]
    assert time.monotonic() - began < 20, "a hang must not outlast the case's limit"


def test_a_first_hang_points_at_the_iommu() -> None:
    found = _fault("first hang", timeout=2)
    assert "iommu=pt" in found["to_do"]
    assert "IOMMU" in found["detail"]


def test_a_crash_names_the_signal() -> None:
    assert "SIGSEGV" in _fault("crash")["detail"]


def test_garbage_is_counted() -> None:
    result = _run(_job(cases.Case("case", {"FAKE_FAULT": "garbage"})))
    assert not any(row["correct"] for row in result["cases"][0]["results"])


def test_a_refusal_of_nccl_is_quoted() -> None:
    result = _run(_job(cases.Case("case", {"NCCL_ALGO": "Nonsense"})))
    found = result["cases"][0]["diagnosis"]
    assert found["name"] == "initialisation-failed"
    assert "unknown NCCL_ALGO Nonsense" in found["detail"]


def test_a_failed_case_does_not_keep_the_next_from_being_measured() -> None:
    bad, good = cases.Case("bad", {"FAKE_FAULT": "crash"}), cases.Case("good")
    result = _run(_job(bad, good))
    assert [case["status"] for case in result["cases"]] == ["failed", "measured"]


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"FAKE_GPUS": ""}, "cuda-missing"),
        ({"FAKE_GPUS": "H200"}, "too-few-gpus"),
        ({"FAKE_WITHOUT_NCCL": "1"}, "nccl-missing"),
        ({"PYTHONPATH": ""}, "torch-missing"),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_measured(environment: dict[str, str], name: str) -> None:
    result = _run(_job(cases.Case("nothing set")), **environment)
    assert [found["name"] for found in result["diagnoses"]] == [name]
    assert result["cases"] == []


def test_mixed_models_are_measured_with_a_warning() -> None:
    result = _run(_job(cases.Case("nothing set")), FAKE_GPUS="H200,H100")
    assert [case["status"] for case in result["cases"]] == ["measured"]
    (found,) = result["diagnoses"]
    assert (found["name"], found["detail"], found["stops"]) == ("mixed-gpus", "H100, H200", False)


def _trial(**extra: Any) -> cases.Case:
    tables = {"one": cases.Trial("table 1\n", (64, 256)), "two": cases.Trial("table 2\n", (64,))}
    return cases.Case("trials", {"NCCL_MIN_CTAS": "8"}, trials=tables, **extra)


def test_settings_share_a_start_and_are_cases_of_their_own() -> None:
    one, two = _run(_job(_trial()))["cases"]
    assert (one["name"], [row["bytes"] for row in one["results"]]) == ("one", [64, 256])
    assert (two["name"], [row["bytes"] for row in two["results"]]) == ("two", [64])
    assert (one["files"], two["files"]) == (
        {"NCCL_TUNER_CONFIG_FILE": "table 1\n"},
        {"NCCL_TUNER_CONFIG_FILE": "table 2\n"},
    )
    assert one["environment"] == two["environment"] == {"NCCL_MIN_CTAS": "8"}


def test_each_setting_is_measured_under_its_own_table() -> None:
    """The stand-in for NCCL reads the table at every call, as the plugin does, and is slow under the second."""
    result = _run(_job(_trial(), sizes=(64,)), FAKE_SLOW_TABLE="table 2")
    one, two = (case["results"][0]["median_us"] for case in result["cases"])
    assert two > one + 1000
    result = _run(_job(_trial(prune=1.5), sizes=(64,)), FAKE_SLOW_TABLE="table 2")
    one, two = (case["results"][0] for case in result["cases"])
    assert (one["repeats"], two["repeats"]) == (3, 1), "what is hopeless is timed once"


def test_ranks_of_a_gang_start_together_and_are_measured_in_turn() -> None:
    listed = [cases.Case(f"case {number}", {"FAKE_START_SECONDS": "2"}) for number in range(4)]
    result = _run(_job(*listed, gang=4))
    assert [case["name"] for case in result["cases"]] == [case.name for case in listed]
    began = [float(case["effective"]["NCCL_FAKE_BEGAN"]) for case in result["cases"]]
    assert max(began) < min(began) + 2, "each takes two seconds to start, and none waited for another"


@pytest.mark.parametrize("fault", ["init hang", "first hang", "late hang", "crash"])
def test_a_fault_in_a_gang_costs_no_other_case(fault: str) -> None:
    bad = cases.Case("bad", {"FAKE_FAULT": fault})
    result = _run(_job(cases.Case("before"), bad, cases.Case("after"), gang=3, timeout=3))
    assert [case["status"] for case in result["cases"]] == ["measured", "failed", "measured"]
    assert result["complete"]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2] != "Z"
    except OSError:
        return False


def test_killing_the_probe_leaves_no_rank_and_keeps_what_was_measured(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    job = _job(cases.Case("nothing set"), cases.Case("slow", {"FAKE_FAULT": "late hang"}), timeout=50)
    probe = subprocess.Popen(
        [sys.executable, "-c", PROBE, job, target], env=_environment(), stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 30
        ranks: list[int] = []
        while time.monotonic() < deadline and not (target.exists() and len(ranks) == 2):
            children = Path(f"/proc/{probe.pid}/task/{probe.pid}/children").read_text(encoding="utf-8")
            ranks = [int(pid) for pid in children.split()]
            time.sleep(0.01)
        assert len(ranks) == 2
    finally:
        probe.send_signal(signal.SIGKILL)
        probe.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(_alive(pid) for pid in ranks):
        time.sleep(0.02)
    assert not any(_alive(pid) for pid in ranks)
    kept = record.read(target.read_text(encoding="utf-8"))
    assert {timing.case for timing in kept.timings} == {"nothing set"}
    assert "CUT SHORT" in kept.heading()
