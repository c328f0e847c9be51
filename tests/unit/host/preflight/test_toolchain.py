"""When a compiler is needed, and how sure that is."""

from __future__ import annotations

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import engine_process, toolchain
from tests.unit.host.preflight.conftest import said


@pytest.fixture
def compiling(subject, root, monkeypatch):
    """Findings in an environment with these packages, where the tools give these troubles."""

    def look(*packages, gpus=1, words=(), environment=None, answer=None, python="/bin/sh", **troubles):
        folder = root / "venv/lib/python3.11/site-packages"
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.rmdir()
        for name in packages:
            (folder / f"{name}-1.0.dist-info").mkdir()
        (folder / "triton-1.0.data").mkdir()  # what a removal may leave
        asked = []

        def ask(release, code, job, timeout):
            asked.extend(job["tools"] or ["nothing"])
            return answer or {tool: troubles.get(tool.replace("+", "x").replace(".", ""), "") for tool in job["tools"]}

        monkeypatch.setattr(engine_process, "ask", ask)
        found = subject(*words, gpus=gpus, venv=str(root / "venv"), environment=environment or {})
        found.release["argv"][0] = python
        look.asked = asked
        findings = toolchain.toolchain(found)
        assert all(item["evidence"].keys() <= {"tool", "log"} and item["evidence"] for item in findings)
        return said(findings)

    return look


FLASHINFER = "flashinfer_python"


def test_only_what_compiles_at_run_time_asks_for_compilers(compiling):
    assert (compiling("torch"), compiling.asked) == ([], [])
    assert (compiling("triton"), compiling.asked) == ([], ["Python.h"])
    assert (compiling("triton", python="/no/python"), compiling.asked) == ([], [])  # another check tells
    assert (compiling(FLASHINFER), compiling.asked) == ([], ["c++", "ninja", "nvcc"])
    assert (compiling(FLASHINFER, "flashinfer_jit_cache"), compiling.asked) == ([], [])


@pytest.mark.failure("6.14", "6.15", "6.17")
@pytest.mark.parametrize("tool", toolchain.REPAIRS)
def test_6_14_6_15_and_6_17_each_tool_has_its_repair(compiling, root, tool):
    name = tool.replace("+", "x").replace(".", "")
    found = compiling("triton", FLASHINFER, words=["--attention-backend", "flashinfer"], **{name: "no " + tool})
    assert [(row[0], row[2]) for row in found] == [("fatal", toolchain.REPAIRS[tool].format(venv=root / "venv"))]
    assert found[0][1].endswith(f", and with the unit's PATH there is no {tool}")
    found = compiling("triton", FLASHINFER, **{name: "cannot compile two lines"})
    assert [row[1].endswith(": cannot compile two lines") for row in found] == [True]


@pytest.mark.parametrize(
    ("gpus", "words", "environment", "package", "severity"),
    [
        (1, [], {}, "triton", "fatal"),
        (0, [], {}, "triton", "warning"),
        (1, [], {}, FLASHINFER, "warning"),  # nobody has chosen it
        (1, ["--attention-backend", "FLASHINFER_MLA"], {}, FLASHINFER, "fatal"),
        (0, ["--attention-backend", "flashinfer"], {}, FLASHINFER, "warning"),
        (1, ["--attention-backend", "triton"], {}, FLASHINFER, "warning"),
        (1, [], {"VLLM_USE_FLASHINFER_SAMPLER": "1"}, FLASHINFER, "fatal"),
        (1, [], {"VLLM_USE_FLASHINFER_SAMPLER": "0"}, FLASHINFER, "warning"),
    ],
)
def test_what_the_start_needs_is_fatal_and_what_it_may_need_a_warning(
    compiling, gpus, words, environment, package, severity
):
    found = compiling(package, gpus=gpus, words=words, environment=environment, nvcc="no nvcc", Pythonh="no C compiler")
    assert [row[0] for row in found] == [severity]


def test_kernels_that_are_compiled_already_need_no_nvcc(compiling, root):
    (root / "ws/.cache/flashinfer/120").mkdir(parents=True)
    options = {"words": ["--attention-backend", "flashinfer"], "nvcc": "no nvcc", "ninja": "no ninja",
               "environment": {"FLASHINFER_WORKSPACE_BASE": str(root / "ws")}}  # fmt: skip
    assert [row[0] for row in compiling(FLASHINFER, **options)] == ["fatal", "fatal"]
    (root / "ws/.cache/flashinfer/120/kernel.so").touch()
    assert [row[0] for row in compiling(FLASHINFER, **options)] == ["fatal", "warning"]


def test_an_environment_that_does_not_answer_is_a_warning(compiling):
    found = compiling("triton", answer={"failure": "it ended with 1", "log": []})
    message = "it could not be seen whether the engine can compile: it ended with 1"
    assert found == [("warning", message, "the first start that compiles will show it")]
