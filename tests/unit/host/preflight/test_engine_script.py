"""What is asked of an engine's parser, on parsers of argparse as both engines have."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import sysconfig
import types

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import engine_script, toolchain_script


@pytest.fixture
def examine(monkeypatch):
    """The answer for a command line of a made-up SGLang; `resolve` and `deeper` are called in its two stages."""
    for name in ("parse_known_args", "parse_args", "error", "exit"):
        monkeypatch.setattr(argparse.ArgumentParser, name, getattr(argparse.ArgumentParser, name))

    def look(*argv, declared=None, resolve=lambda parsed: None, deeper=lambda parsed: None, module=True):
        def prepare(words):
            parser = argparse.ArgumentParser()
            parser.add_argument("--model-path", default="/m")
            parser.add_argument("--host", default="::")
            parser.add_argument("--tp-size", "--tp", type=int, dest="tp_size", default=1)
            parser.add_argument("--schedule-policy", choices=("lpm", "fcfs"))
            parser.add_argument("--json-model-override-args")
            parser.add_argument("--served-model-name", nargs="+")
            parser.add_argument("--lora", action="append")
            parser.add_argument("--fast", action=argparse.BooleanOptionalAction)
            parsed = parser.parse_args(words)
            resolve(parsed)
            return types.SimpleNamespace(check_server_args=lambda: deeper(parsed))

        package, srt, args = (types.ModuleType(name) for name in ("sglang", "sglang.srt", "sglang.srt.server_args"))
        if module:
            args.prepare_server_args = prepare
        for found in (package, srt, args):
            found.__path__ = []
            monkeypatch.setitem(sys.modules, found.__name__, found)
        monkeypatch.setattr(engine_script, "versions", lambda engine: {"sglang": "0.5.23"})
        return engine_script.examine({"engine": "sglang", "argv": list(argv), "declared": declared or {}})

    return look


CLEAN = {"broken": "", "unavailable": "", "problems": [], "deeper": "", "versions": {"sglang": "0.5.23"},
         "unknown": [], "duplicates": []}  # fmt: skip


@pytest.mark.failure("4.15")
@pytest.mark.parametrize(
    ("argv", "answer"),
    [
        (["--tp", "2"], {}),
        (["--tp=2", "--lora", "a", "--lora", "b"], {}),
        (["--tp-siz", "2"], {"unknown": [{"flag": "--tp-siz", "longer": ["--tp-size"], "near": ["--tp-size"]}]}),
        (["--schedule-polisy", "x"],
         {"unknown": [{"flag": "--schedule-polisy", "longer": [], "near": ["--schedule-policy"]}]}),
        (["--qqq=1"], {"unknown": [{"flag": "--qqq", "longer": [], "near": []}]}),
        (["stray"], {"unknown": [{"flag": "stray", "longer": [], "near": []}]}),
        (["--qqq", "x"], {"unknown": [{"flag": "--qqq", "longer": [], "near": []}]}),
        (["--qqq", "-1"], {"unknown": [{"flag": "--qqq", "longer": [], "near": []}]}),
        (["--tp", "2", "--tp", "3"], {"duplicates": [["--tp", "--tp"]]}),
        (["--tp", "2", "--tp-size=2"], {"duplicates": [["--tp", "--tp-size"]]}),
        (["--fast", "--no-fast"], {"duplicates": [["--fast", "--no-fast"]]}),
        (["--tp", "two"], {"problems": ["argument --tp-size/--tp: invalid int value: 'two'"]}),
        (["--tp"], {"problems": ["argument --tp-size/--tp: expected one argument"]}),
        (["--help"], {"problems": ["a flag makes the engine print something and end at once"]}),
        (["--json-model-override-args", '{"a": 1}'], {}),
        (["--json-model-override-args", "@/a/file"], {}),
        (["--json-model-override-args="], {}),
        (["--json-model-override-args", "x", "--tp", "2"], {"problems": [
            "argument --json-model-override-args: 'x' is not JSON: Expecting value: line 1 column 1 (char 0)"]}),
        (["--json-model-override-args={'a': 1}"], {"problems": [
            "argument --json-model-override-args: \"{'a': 1}\" is not JSON: Expecting property name enclosed in double "
            "quotes: line 1 column 2 (char 1)"]}),
    ],
)  # fmt: skip
def test_what_an_engine_would_take_silently_is_seen(examine, argv, answer):
    found = examine(*argv)
    assert 0 <= found.pop("seconds") < 60
    assert found == {**CLEAN, **answer}


def test_a_wrong_choice_is_the_parsers_own_refusal(examine):
    assert "argument --schedule-policy: invalid choice: 'best'" in examine("--schedule-policy", "best")["problems"][0]


@pytest.mark.parametrize(
    ("argv", "declared", "problems"),
    [
        (["--model-path", "/x"], {"model.path": "/x"}, []),
        ([], {"model.path": "/x"}, ["model.path is declared as '/x', and the engine reads '/m'"]),
        (["--tp", "2"], {"parallelism.tensor": 4}, ["parallelism.tensor is declared as 4, and the engine reads 2"]),
        (["--served-model-name", "a"], {"model.served_name": "a"}, []),
        (["--served-model-name", "a", "b"], {"model.served_name": "a"},
         ["model.served_name is declared as 'a', and the engine reads ['a', 'b']"]),
        ([], {"listen.port": 1}, []),  # this parser has none
    ],
)  # fmt: skip
def test_what_the_parser_reads_is_what_was_declared(examine, argv, declared, problems):
    assert examine(*argv, declared=declared)["problems"] == problems
    refused = examine(*argv, "--tp", "x", declared=declared)  # one refusal is enough
    assert (len(refused["problems"]), refused["deeper"]) == (1, "")


def test_the_model_is_looked_at_only_when_the_flags_are_right(examine):
    def wrong(parsed):
        raise ValueError("tp_size does not fit [type=value_error, input_value=1]\n\n    For further information see x")

    assert examine(deeper=wrong)["deeper"] == "ValueError: tp_size does not fit"
    assert examine(resolve=wrong)["deeper"] == "ValueError: tp_size does not fit"  # versions that resolve at once
    assert examine("--qqq", deeper=wrong)["deeper"] == ""
    assert examine("--tp", "2", "--tp", "2", deeper=wrong)["deeper"] == ""
    assert examine(declared={"model.path": "/x"}, deeper=wrong)["deeper"] == ""

    def refuse(parsed):
        argparse.ArgumentParser().error("no")

    assert examine(resolve=refuse)["problems"] == ["no"]

    def leave(parsed):
        raise SystemExit(3)

    assert examine(deeper=leave)["deeper"] == "SystemExit: 3"


def test_an_engine_without_its_parser_or_that_cannot_be_imported(examine, monkeypatch):
    answer = examine(module=False)
    assert answer["unavailable"] == "ImportError: no prepare_server_args in sglang.srt.server_args"
    assert answer["deeper"] == ""
    monkeypatch.setattr(engine_script, "versions", lambda engine: {})
    monkeypatch.setitem(sys.modules, "vllm", None)
    answer = engine_script.examine({"engine": "vllm", "argv": [], "declared": {}})
    assert answer["broken"].startswith("vllm cannot be imported: ModuleNotFoundError")


def test_torch_is_imported_first_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(engine_script, "versions", lambda engine: {"torch": "2.9"})
    monkeypatch.setitem(sys.modules, "torch", None)
    answer = engine_script.examine({"engine": "sglang", "argv": [], "declared": {}})
    assert answer["broken"].startswith("torch cannot be imported: ModuleNotFoundError: import of torch halted")


def test_the_first_layout_that_has_a_thing_wins_and_a_missing_dependency_is_no_other_layout(monkeypatch):
    one, two = types.ModuleType("layout_one"), types.ModuleType("layout_two")
    two.thing = 2
    monkeypatch.setitem(sys.modules, "layout_one", one)
    monkeypatch.setitem(sys.modules, "layout_two", two)
    assert engine_script.first(("layout_none", "layout_one", "layout_two"), "thing") == 2
    one.thing = 1
    assert engine_script.first(("layout_one", "layout_two"), "thing") == 1

    def missing(name):
        raise ModuleNotFoundError(name="needed")

    monkeypatch.setattr(engine_script.importlib, "import_module", missing)
    with pytest.raises(ModuleNotFoundError):
        engine_script.first(("layout_one", "layout_two"), "thing")


def test_versions_of_what_is_installed(monkeypatch):
    def version(name):
        if name in ("sglang", "torch"):
            return "1"
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert engine_script.versions("sglang") == {"sglang": "1", "torch": "1"}


@pytest.mark.failure("6.14", "6.15", "6.17")
@pytest.mark.parametrize(
    ("tool", "programs", "trouble"),
    [
        ("ninja", {}, "no ninja"),
        ("ninja", {"ninja": "exit 1"}, ""),  # only looked for
        ("nvcc", {}, "no nvcc"),
        ("nvcc", {"nvcc": "exit 0"}, ""),
        ("c++", {}, "no c++"),
        ("c++", {"g++": "exit 0"}, ""),
        ("Python.h", {}, "no C compiler"),
        ("Python.h", {"clang": "exit 0"}, ""),
        ("Python.h", {"gcc": "echo t.c:1: fatal error: Python.h: no such file; exit 1", "clang": "exit 0"},
         "{}/gcc cannot compile two lines: t.c:1: fatal error: Python.h: no such file"),
        ("nvcc", {"nvcc": "exit 3"}, "{}/nvcc cannot compile two lines: exit code 3"),
    ],
)  # fmt: skip
def test_a_compiler_is_looked_for_as_its_caller_does_and_compiles_two_lines(
    tmp_path, monkeypatch, tool, programs, trouble
):
    for name in ("CC", "CXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    for name, body in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    assert toolchain_script.trouble(tool, str(tmp_path)) == trouble.format(tmp_path / "bin")


def test_the_headers_of_the_engines_own_python_are_compiled_with(tmp_path, monkeypatch):
    for name in ("gcc", "g++"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/{name}.said\n")
        (tmp_path / name).chmod(0o755)
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [toolchain_script.trouble(tool, str(tmp_path)) for tool in ("Python.h", "c++")] == ["", ""]
    include = "-I " + sysconfig.get_paths()["include"]
    assert [include in (tmp_path / f"{name}.said").read_text() for name in ("gcc", "g++")] == [True, False]


def test_variables_that_name_a_compiler_win(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    for name in ("nvcc", "mine"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(variable, str(tmp_path))
        assert toolchain_script.find("nvcc") == str(tmp_path / "bin/nvcc")
        monkeypatch.delenv(variable)
    for variable, tool in (("CC", "Python.h"), ("CXX", "c++")):
        monkeypatch.setenv(variable, str(tmp_path / "bin/mine"))
        assert toolchain_script.trouble(tool, str(tmp_path)) == ""
        monkeypatch.setenv(variable, str(tmp_path / "none"))
        assert "cannot be run" in toolchain_script.trouble(tool, str(tmp_path))
