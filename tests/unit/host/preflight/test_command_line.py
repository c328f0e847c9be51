"""What preflight makes of what an engine's parser says, and when it is asked."""

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import paths
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import (
    command_line,
    engine_facts,
    engine_process,
)
from tests.unit.host.preflight.conftest import said

CLEAN = {"broken": "", "unavailable": "", "unknown": [], "duplicates": [], "problems": [], "deeper": "", "seconds": 6,
         "versions": {"sglang": "0.5.23+cu13", "torch": "2.9"}}  # fmt: skip
NO_GPU = "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available."


@pytest.fixture
def asked(subject, root, monkeypatch):
    """Findings after an answer of the parser; `asked.jobs` are what was asked."""

    def look(gpus=0, argv=None, **answer):
        jobs = []
        monkeypatch.setattr(
            engine_process, "ask", lambda release, code, job, timeout: jobs.append(job) or {**CLEAN, **answer}
        )
        look.jobs = jobs
        found = subject(gpus=gpus)
        found.release["argv"] = argv or ["/bin/sh", "-m", "sglang.launch_server", "--x"]
        return command_line.command_line(found)

    monkeypatch.setattr(paths, "PREFLIGHT", str(root / "answers"))
    monkeypatch.setattr(paths, "HOST_PYZ", str(root / "host.pyz"))
    monkeypatch.setattr(command_line, "_unkept", {})
    return look


@pytest.mark.failure("4.15")
@pytest.mark.parametrize(
    ("answer", "severity", "message", "repair"),
    [
        ({}, "ok", "sglang 0.5.23 takes its arguments", ""),
        ({"failure": "it ended with 3", "log": ["a"]}, "warning", "the argument parser of sglang 0.5.23 could not be "
         "asked: it ended with 3", "the flags are checked by the start alone"),
        ({"broken": "sglang cannot be imported: x"}, "fatal", "as user llm-tiny, sglang cannot be imported: x",
         "install sglang 0.5.23 anew into"),
        ({"versions": {"sglang": "0.5.22"}}, "fatal", "holds sglang 0.5.22, declared is 0.5.23",
         "declare version: 0.5.22"),
        ({"versions": {}}, "ok", "", ""),
        ({"unavailable": "ImportError: x"}, "warning", "is not where it was in known versions: ImportError: x",
         "the flags are checked by the start alone"),
        ({"unknown": [{"flag": "--cuda-graph-bs", "longer": ["--cuda-graph-bs-decode", "--cuda-graph-bs-prefill"],
                       "near": []}]}, "fatal", "has no flag --cuda-graph-bs any more since 0.5.22",
         "declare cuda-graph-bs-decode"),
        ({"unknown": [{"flag": "--enable-ep-moe", "longer": [], "near": []}]}, "fatal",
         "has no flag --enable-ep-moe any more", "declare parallelism.expert"),
        ({"unknown": [{"flag": "--task", "longer": [], "near": []}]}, "fatal", "has no flag --task", "leave it out"),
        ({"unknown": [{"flag": "--tp-siz", "longer": ["--tp-size"], "near": []}]}, "fatal",
         "--tp-siz is an abbreviation of --tp-size, which sglang would take without a word", "write --tp-size"),
        ({"unknown": [{"flag": "--t", "longer": ["--tp", "--top"], "near": []}]}, "fatal", "has no flag --t",
         "did you mean --tp, --top?"),
        ({"unknown": [{"flag": "--tp-sice", "longer": [], "near": ["--tp-size"]}]}, "fatal", "has no flag --tp-sice",
         "did you mean --tp-size?"),
        ({"duplicates": [["--seed", "--seed"]]}, "fatal", "--seed is given twice", "declare it once"),
        ({"duplicates": [["--tp", "--tp-size"]]}, "fatal", "--tp and --tp-size set the same option",
         "declare one of them"),
        ({"problems": ["argument --x: invalid choice"]}, "fatal", "refuses its arguments: argument --x: invalid choice",
         "declare a value it takes"),
        ({"deeper": "ValueError: must be divisible by tp_size"}, "fatal", "refuses this model with these arguments",
         "declare what the model can do"),
    ],
)  # fmt: skip
def test_what_the_parser_says_is_told_with_the_repair(asked, answer, severity, message, repair):
    ((seen, text, what),) = said(asked(**answer))
    assert (seen, message in text, repair in what) == (severity, True, True)


@pytest.mark.parametrize("row", engine_facts.REMOVED_FLAGS)
def test_every_removed_flag_names_what_takes_its_place(row):
    engine, flag, since, instead, source = row
    item = {"flag": flag, "longer": [flag + "-x"], "near": []}
    release = {"engine": engine, "version": "9"}
    found = command_line._unknown(release, item)
    assert (found["severity"], found["repair"], found["evidence"]) == ("fatal", instead, {"source": source})
    assert found["message"].endswith(f"any more since {since}" if since else "any more")


@pytest.mark.parametrize(
    ("gpus", "text", "severity"),
    [
        ([0, 1], "", None),
        ([0, 1], NO_GPU, None),  # it was given none: nothing to tell a person at every deploy
        ([], NO_GPU, "fatal"),
        ([0, 1], "ValueError: num_heads must be divisible by tp_size", "fatal"),
        ([0, 1], "OSError: /m does not appear to have a file named config.json", "fatal"),
        ([0, 1], "ValueError: max_model_len is for another engine", "warning"),
        ([0, 1], "ValueError: something of a new version", "warning"),
    ],
)
def test_only_what_a_gpu_could_not_change_refuses(gpus, text, severity):
    found = command_line._deeper({"engine": "sglang", "gpus": gpus}, "sglang 0.5.17", text)
    assert [item["severity"] for item in found] == ([] if severity is None else [severity])
    assert [item["repair"] for item in found] == {
        None: [], "fatal": ["declare what the model can do"], "warning": ["if it is right, the start will show it"]
    }[severity]  # fmt: skip


def test_an_answer_is_kept_only_on_a_host_that_is_managed_and_only_a_clean_one(asked, root):
    answers = root / "answers"
    assert not asked()[0]["evidence"]["cached"]
    assert not answers.exists()  # a look leaves nothing behind
    (root / "host.pyz").touch()
    wrong = {"broken": "x", "unavailable": "x", "failure": "x", "problems": ["x"], "duplicates": [["--x", "--x"]],
             "unknown": [{"flag": "--x", "longer": [], "near": []}]}  # fmt: skip
    for name, value in wrong.items():
        asked(argv=["/bin/sh", "-m", "x", "--" + name], **{name: value})
    assert not answers.exists()
    asked(argv=["/bin/sh", "-m", "x", "--right"])
    assert asked(argv=["/bin/sh", "-m", "x", "--right"])[0]["evidence"]["cached"]
    assert asked.jobs == []


def test_the_first_deploy_keeps_the_answer_once_the_host_is_managed(asked):
    assert not asked()[0]["evidence"]["cached"]
    command_line.keep()
    assert asked()[0]["evidence"]["cached"]


def test_an_answer_is_asked_for_again_when_what_it_rests_on_changes(asked, root, subject):
    (root / "host.pyz").touch()
    asked()
    config = root / "model/config.json"
    config.write_text("{}")
    assert not asked()[0]["evidence"]["cached"]
    assert asked()[0]["evidence"]["cached"]
    os.utime(config, (1, 1))
    assert not asked()[0]["evidence"]["cached"]
    for path in (root / "answers").glob("*.json"):
        path.write_text("{")  # cut short by a power failure
    assert not asked()[0]["evidence"]["cached"]
    release = subject(engine="vllm").release
    key = command_line._key(release)
    changes = [{"argv": ["x"]}, {"user": "x"}, {"version": "x"}, {"environment": {"A": "1"}}, {"listen": {}}]
    assert len({key, *(command_line._key({**release, **change}) for change in changes)}) == 6
    assert command_line._key({**release, "environment": {**release["environment"], "NCCL_ALGO": "Ring"}}) == key


@pytest.mark.parametrize(
    ("engine", "words", "name"),
    [
        ("sglang", ["--chat-template", "{}"], "template.jinja"),
        ("sglang", ["--chat-template={}"], "template.jinja"),
        ("vllm", ["--config", "{}"], "more.yaml"),
        ("sglang", ["--speculative-draft-model-path", "{0.parent}"], "config.json"),
        ("vllm", ["--speculative-config", '{{"model": "{0.parent}"}}'], "config.json"),
        ("vllm", ["--tokenizer", "{0.parent}"], "tokenizer_config.json"),
        ("vllm", ["--model", "{0.parent}"], "config.json"),
    ],
)
def test_an_answer_rests_on_files_and_folders_that_the_arguments_name(subject, root, engine, words, name):
    file = root / "named" / name
    file.parent.mkdir()
    file.write_text("a")
    release = subject(*(word.format(file) for word in words), engine=engine).release
    key = command_line._key(release)
    (file.parent / "log").touch()  # what a service writes there
    assert command_line._key(release) == key
    file.write_text("ab")
    changed = command_line._key(release)
    os.utime(file, (1, 1))
    assert len({key, changed, command_line._key(release)}) == 3
    file.unlink()
    assert command_line._key(release) not in (key, changed)


def test_old_answers_go(asked, root):
    (root / "host.pyz").touch()
    (root / "answers").mkdir()
    for number in range(command_line.KEPT_ANSWERS):
        (root / f"answers/{number}.json").write_text("{}")
        os.utime(root / f"answers/{number}.json", (number, number))
    asked()
    left = {path.name for path in (root / "answers").iterdir()}
    assert len(left) == command_line.KEPT_ANSWERS
    assert "0.json" not in left
    assert "1.json" in left


def test_the_parser_is_told_what_was_declared(asked):
    asked(gpus=2)
    assert asked.jobs[0]["argv"] == ["--x"]
    declared = asked.jobs[0]["declared"]
    assert declared["listen.port"] == 30000
    assert declared["parallelism.tensor"] == 2
    assert "model.context_length" not in declared  # nothing is said of it


def test_an_interpreter_that_is_missing_is_another_checks_to_tell(asked):
    assert asked(argv=["/no/python", "-m", "x"]) == []
    assert asked.jobs == []


@pytest.mark.parametrize(
    ("stdout", "stderr", "timed_out", "answer"),
    [
        ('noise\n{"a": 1}\n', "", False, {"a": 1}),
        ('{"a": 1}\n{"a": 2}\n', "", False, {"a": 2}),
        ("{broken\n", "x\ny\n", False, {"failure": "y", "log": ["x", "y"]}),
        ("", "", False, {"failure": "it ended with 7", "log": []}),
        ("", "x\n", True, {"failure": "it did not answer within 9 s", "log": ["x"]}),
    ],
)
def test_what_a_script_in_the_engines_environment_answers(subject, monkeypatch, stdout, stderr, timed_out, answer):
    ran = []

    class Done:
        returncode = 7

    def run_as(user, argv, environment, timeout, name, text, **sandbox):
        ran.append((user, environment, json.loads(text), sandbox))
        Done.stdout, Done.stderr, Done.timed_out = stdout, stderr, timed_out
        return Done

    monkeypatch.setattr(engine_process.commands, "run_as", run_as)
    release = subject(gpus=1, cache="/var/cache/x", environment={"HOME": "/var/cache/x/home", "A": "b"}).release
    assert engine_process.ask(release, "code", {"job": 1}, 9) == answer
    # The first start makes user and cache: until then anybody, and a home that is thrown away. And never a GPU.
    assert ran == [
        ("nobody", {"HOME": "/tmp/home", "A": "b", "CUDA_VISIBLE_DEVICES": ""}, {"code": "code", "job": 1}, {})
    ]


def test_a_user_that_is_there_gets_its_cache_and_a_cpu_service_its_variables(subject, root, monkeypatch):
    ran = []

    class Done:
        stdout, stderr, timed_out, returncode = "{}", "", False, 0

    monkeypatch.setattr(
        engine_process.commands, "run_as", lambda *words, **options: ran.append((words, options)) or Done
    )
    environment = {"HOME": f"{root}/home"}
    release = subject(cache=str(root), environment=environment, user="daemon").release
    engine_process.ask(release, "", {}, 9)
    ((user, _argv, seen, _timeout), options) = ran[0]
    assert (user, seen, options["ReadWritePaths"]) == ("daemon", environment, str(root))
