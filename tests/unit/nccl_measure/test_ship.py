"""The program that measures, as it is sent to a host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servewright.nccl.measure import diagnosis, ship

FAKE = Path(__file__).parent / "fake_torch"
PAGE = Path(__file__).parents[3] / "docs" / "nccl" / "commands.md"
REQUEST = {
    "what": "bench",
    "ranks": 2,
    "topology": "pcie",
    "profiles": {"nothing set": {}},
    "weights": {"decode": 1, "prefill": 1},
    "seconds": 1,
    "timeout": 20,
    "plugin": None,
    "dtype": None,
    "decode": [1],
    "prefill": [2],
}


def _program(folder: Path, content: Any, **request: Any) -> tuple[Path, Path]:
    program, asked = folder / "measure.pyz", folder / "request.json"
    program.write_bytes(ship.program())
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    asked.write_text(json.dumps({**REQUEST, "config": str(folder / "config.json"), **request}), encoding="utf-8")
    return program, asked


def _run(*words: Path | str, torch: bool = True, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(FAKE) if torch else "", "FAKE_GPUS": "H200,H200", **extra}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, env=environment, timeout=120, check=False, cwd="/"
    )


def test_it_runs_without_the_package_and_leaves_a_record_and_an_outcome(tmp_path: Path) -> None:
    program, asked = _program(tmp_path, {"hidden_size": 8, "dtype": "float16"}, rehearsal=True)
    done = _run(program, asked, tmp_path)
    assert done.returncode == 0, done.stderr
    outcome = json.loads((tmp_path / "outcome.json").read_text(encoding="utf-8"))
    assert outcome["how"] == "bench"
    assert [row["case"] for row in outcome["scores"]] == ["nothing set"]
    record = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    rows = [row for case in record["cases"] for row in case["results"]]
    assert {row["bytes"] for row in rows} == {16, 32}
    assert {row["collective"] for row in rows} == {"all_reduce", "all_gather", "reduce_scatter"}
    assert all(row["correct"] for row in rows)


def test_the_same_sources_give_the_same_bytes() -> None:
    assert ship.program() == ship.program()


@pytest.mark.parametrize(
    ("config", "request_", "torch", "extra", "name"),
    [
        ({}, {}, True, {}, "model-config"),
        ({"hidden_size": 8, "dtype": "int4"}, {}, True, {}, "model-config"),
        ({"hidden_size": 8}, {"config": "/nonexistent/config.json"}, True, {}, "model-config"),
        ({"hidden_size": 8}, {}, False, {}, "torch-missing"),
        ({"hidden_size": 8}, {}, True, {"FAKE_WITHOUT_NCCL": "1"}, "nccl-missing"),
        ({"hidden_size": 8}, {}, True, {}, None),
    ],
)
def test_what_lacks_is_found_without_a_gpu(
    tmp_path: Path, config: Any, request_: dict[str, Any], torch: bool, extra: dict[str, str], name: str | None
) -> None:
    program, asked = _program(tmp_path, config, **request_)
    done = _run(program, "--check", asked, torch=torch, FAKE_GPUS="", **extra)
    found = json.loads(done.stdout)
    assert (found and found["name"]) == name
    assert "Traceback" not in done.stderr


def test_a_diagnosis_of_every_case_ends_up_in_the_outcome(tmp_path: Path) -> None:
    program, asked = _program(tmp_path, {"hidden_size": 8}, timeout=2)
    done = _run(program, asked, tmp_path, FAKE_FAULT="first hang")
    assert done.returncode == 1
    outcome = json.loads((tmp_path / "outcome.json").read_text(encoding="utf-8"))
    assert outcome["diagnosis"]["name"] == "first-collective-hang"


def test_every_diagnosis_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    # These two cannot come from what servewright itself asks for.
    assert [name for name in diagnosis.WHAT_TO_DO if f"`{name}`" not in text] == ["bad-job", "unsupported"]
