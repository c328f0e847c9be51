"""The files of the model, of its draft, and who may read them."""

from __future__ import annotations

import json
import os
import struct
import types

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import safetensors, users
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import engine, model
from tests.unit.host.preflight.conftest import said


def shard(path, size=8, more=0):
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "I8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size + more))


DRAFT = {"sglang": ["--speculative-draft-model-path", "{}"], "vllm": ["--speculative-config", '{{"model": "{}"}}']}


@pytest.fixture(params=["model", "draft of sglang", "draft of vllm"])
def looked_at(request, subject, root):
    """A folder that is the model's or the draft's, what it is called, and the Subject; all is well with both."""
    what, _of, name = request.param.partition(" of ")
    words = [word.format(root / "draft") for word in DRAFT.get(name, [])]
    found = subject(*words, engine=name or "sglang", config={})
    (root / "draft").mkdir()
    for folder in (root / "model", root / "draft"):
        (folder / "config.json").write_text("{}")
        shard(folder / "model.safetensors")
    return root / what, {"model": "model", "draft": "draft model"}[what], found


def test_a_model_folder_that_is_not_there(looked_at):
    folder, what, found = looked_at
    assert model.model(found) == []
    (folder / "config.json").write_text("[]")
    message = f"{folder}/config.json is not a JSON mapping"
    assert said(model.model(found)) == [("fatal", message, f"copy the {what} again")]
    (folder / "config.json").unlink()
    message = f"{folder} has no config.json, so it is not a model"
    assert said(model.model(found)) == [("fatal", message, f"declare the folder of the {what} that holds config.json")]
    (folder / "model.safetensors").unlink()
    folder.rmdir()
    repair = f"declare the right one, or put the {what} there"
    assert said(model.model(found)) == [("fatal", f"there is no {what} folder {folder}", repair)]
    assert len(model.weights(found)) == (1 if what == "draft model" else 0)  # of the other one


def test_files_that_the_services_user_cannot_read(looked_at, monkeypatch):
    folder, _what, found = looked_at
    refused = []
    monkeypatch.setattr(users, "_refused", lambda name, paths, mode: [path for path in paths if path in refused])
    refused.append(f"{folder}/config.json")
    ((severity, message, repair),) = said(model.model(found))
    assert (severity, message) == ("fatal", f"user llm-tiny cannot read {folder}/config.json")
    assert "chmod -R o+rX" in repair
    refused[:] = [f"{folder}/model.safetensors"]
    assert model.model(found) == []
    fatal = [row for row in said(model.weights(found)) if row[0] == "fatal"]
    assert fatal == [("fatal", f"user llm-tiny cannot read {folder}/model.safetensors", repair)]


@pytest.mark.failure("7.1")
def test_7_1_weights_that_are_missing_cut_or_unreadable(looked_at, monkeypatch):
    folder, _what, found = looked_at

    def fatal():
        return [row[1:] for row in said(model.weights(found)) if row[0] == "fatal"]

    # What is missing cannot be read, either, and is told once.
    monkeypatch.setattr(users, "_refused", lambda name, paths, mode: [p for p in paths if not os.path.exists(p)])
    size = (folder / "model.safetensors").stat().st_size
    for item in model.weights(found):
        assert (item["severity"], item["message"]) == ("ok", "1 weight files, 0.0 GiB")
        assert item["evidence"] == {"bytes": size}
    shard(folder / "model.safetensors", more=1)
    ((message, repair),) = fatal()
    assert message.startswith(f"{folder}/model.safetensors is cut short or damaged")
    assert repair == "copy that file again"
    (folder / "model.safetensors").unlink()
    assert fatal() == [(f"{folder} has no weights", "copy the model again, or declare its folder")]
    for name in ("model.bin", "x.gguf"):
        (folder / name).touch()
        assert fatal() == []
        (folder / name).unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text("{")
    assert fatal() == [(f"{index} cannot be read", "copy the model again")]
    names = [f"model-{number}.safetensors" for number in range(3)]
    shard(folder / names[1])
    there = (folder / names[1]).stat().st_size
    lacks = f"{folder} lacks 2 of 3 weight files: {names[0]} and 1 more"
    for missing, room, more, repair in (
        (4 << 30, 4 << 30, "", "copy the rest of the model"),
        (5 << 30, 4 << 30, "; 5.0 GiB are missing, and only 4.0 GiB are free there", "make room, then copy the rest"),
    ):
        total = {"total_size": there + missing}
        index.write_text(json.dumps({"metadata": total, "weight_map": dict(enumerate(names))}))
        state = types.SimpleNamespace(f_bavail=room >> 12, f_frsize=4096)
        monkeypatch.setattr(os, "statvfs", lambda path, state=state: state)
        ((message, what_to_do),) = fatal()
        assert (message, what_to_do.startswith(repair)) == (lacks + more, True)
    (found,) = [item for item in model.weights(found) if not item["passed"]]
    assert found["evidence"] == {"missing_bytes": 5 << 30, "free_bytes": 4 << 30}


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 9\n"


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.json",
        "model.safetensors.index.json",
        "generation_config.json",
        "modeling_kimi.py",
        "tokenizer.model",
        "chat_template.jinja",
        "merges.txt",
    ],
)
def test_files_beside_the_weights_are_readable_and_not_pointers_of_git_lfs(looked_at, monkeypatch, name):
    folder, _what, found = looked_at
    (folder / name).write_text("{}")
    assert model.model(found) == []
    (folder / name).write_text(POINTER)
    message = f"{folder}/{name} is a Git LFS pointer, not the file itself"
    assert said(model.model(found)) == [("fatal", message, "fetch it: git lfs pull")]
    (folder / name).write_text("{}")
    monkeypatch.setattr(users, "_refused", lambda user, paths, mode: [path for path in paths if path.endswith(name)])
    assert [row[:2] for row in said(model.model(found))] == [
        ("fatal", f"user llm-tiny cannot read {folder}/{name}")
    ]


def test_what_engines_do_not_read_may_be_anything(looked_at, monkeypatch):
    folder, _what, found = looked_at
    (folder / ".lock.json").mkdir()
    (folder / "README.md").touch()
    monkeypatch.setattr(users, "_refused", lambda user, paths, mode: [path for path in paths if "README" in path])
    assert model.model(found) == []


def test_a_tokenizer_in_a_folder_of_its_own_is_looked_at_as_well(subject, root):
    folder = root / "tokenizer"
    folder.mkdir()
    found = subject("--tokenizer-path", str(folder), config={})
    (folder / "tokenizer.json").write_text("{}")
    assert model.tokenizer(found) == []
    (folder / "tokenizer.json").write_text(POINTER)
    assert [row[1] for row in said(model.tokenizer(found))] == [
        f"{folder}/tokenizer.json is a Git LFS pointer, not the file itself"
    ]


def test_a_model_in_mistrals_own_format(looked_at):
    folder, what, found = looked_at
    (folder / "config.json").rename(folder / "params.json")
    (folder / "model.safetensors").rename(folder / "consolidated.safetensors")
    assert model.model(found) == []
    assert {row[0] for row in said(model.weights(found))} == {"ok"}
    (folder / "params.json").write_text("[]")
    message = f"{folder}/params.json is not a JSON mapping"
    assert said(model.model(found)) == [("fatal", message, f"copy the {what} again")]


@pytest.mark.failure("7.1")
@pytest.mark.parametrize(
    ("there", "lacking"),
    [
        (["model-00001-of-00003.safetensors"], "2 of 3 weight files: model-00002-of-00003.safetensors and 1 more"),
        (["model-1-of-2.safetensors"], "1 of 2 weight files: model-2-of-2.safetensors"),
        (["model-1-of-2.safetensors", "model-2-of-2.safetensors"], None),
        (["model-00000-of-00002.safetensors", "model-00001-of-00002.safetensors"], None),
        (["model-00000-of-00002.safetensors"], "1 of 2 weight files: model-00001-of-00002.safetensors"),
        (["pytorch_model-00002-of-00002.bin"], "1 of 2 weight files: pytorch_model-00001-of-00002.bin"),
        (["consolidated.safetensors", "model.safetensors"], None),
        (["consolidated-00001-of-00002.safetensors", "model.safetensors"], None),
        (["consolidated-00001-of-00002.safetensors"], "1 of 2 weight files"),
    ],
)
def test_7_1_weights_that_are_missing_by_the_numbers_in_their_names(looked_at, there, lacking):
    folder, _what, found = looked_at
    (folder / "model.safetensors").unlink()
    for name in there:
        shard(folder / name)
    messages = [row[1] for row in said(model.weights(found)) if row[0] == "fatal"]
    assert len(messages) == (0 if lacking is None else 1)
    assert all(f"{folder} lacks {lacking}" in message for message in messages)


@pytest.mark.failure("7.1")
@pytest.mark.parametrize(
    ("index", "first", "second"),
    [
        ("pytorch_model.bin.index.json", "pytorch_model-a.bin", "pytorch_model-b.bin"),
        ("consolidated.safetensors.index.json", "consolidated-a.safetensors", "consolidated-b.safetensors"),
    ],
)
def test_7_1_weights_that_are_missing_by_the_index_of_another_format(looked_at, index, first, second):
    folder, _what, found = looked_at
    weights = {"metadata": {"total_size": 9}, "weight_map": {"a": first, "b": second}}
    (folder / index).write_text(json.dumps(weights))
    assert {row[0] for row in said(model.weights(found))} == {"ok"}  # model.safetensors is there, and is what is read
    (folder / "model.safetensors").rename(folder / first)
    (message,) = [row[1] for row in said(model.weights(found)) if row[0] == "fatal"]
    assert message.startswith(f"{folder} lacks 1 of 2 weight files: {second}")
    shard(folder / second)
    assert {row[0] for row in said(model.weights(found))} == {"ok"}
    (folder / second).write_text(POINTER)
    assert [row[1] for row in said(model.weights(found)) if row[0] == "fatal"] == [
        f"{folder}/{second} is a Git LFS pointer, not the weights themselves"
    ]
    (folder / index).write_text("[]")
    assert [row[1] for row in said(model.weights(found)) if row[0] == "fatal"] == [f"{folder}/{index} cannot be read"]


def test_weights_that_are_not_read_are_not_looked_for(subject, root):
    assert [row[0] for row in said(model.weights(subject(config={})))] == ["fatal"]
    assert model.weights(subject("--load-format", "dummy", config={})) == []


@pytest.mark.parametrize(
    ("content", "trouble"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer, not the weights themselves"),
        (b"", "does not begin with a safetensors header"),
        (b"\xff" * 99, "does not begin with a safetensors header"),
        (struct.pack("<Q", 1) + b"{", "does not begin with a safetensors header"),
        (struct.pack("<Q", 2) + b"{}", ""),
        (struct.pack("<Q", 2) + b"[]", "is cut short or damaged: it has 10 bytes, and its header cannot be read"),
        (struct.pack("<Q", 9) + b"{}", "is cut short or damaged: it has 10 bytes, its header says 17"),
        (struct.pack("<Q", 9) + b'{"w":', "is cut short or damaged: it has 13 bytes, and its header cannot be read"),
        (struct.pack("<Q", 2) + b"{}x", "is cut short or damaged: it has 11 bytes, its header says 10"),
        (None, "is missing"),
    ],
)
def test_what_is_wrong_with_a_weight_file(tmp_path, content, trouble):
    path = tmp_path / "w.safetensors"
    if content is not None:
        path.write_bytes(content)
    assert safetensors.trouble(str(path)) == trouble


@pytest.mark.parametrize(
    ("names", "words", "severity", "message"),
    [
        (["tokenizer.json"], [], None, ""),
        (["qwen.tiktoken"], [], None, ""),
        ([], [], "fatal", "has no tokenizer (tokenizer.json"),
        (["tokenizer_config.json"], [], "fatal", "has no tokenizer"),
        (["tokenization_kimi.py"], [], "warning", "only code for one"),
        ([], ["--skip-tokenizer-init"], None, ""),
        ([], ["--tokenizer-path", "some/repository"], None, ""),
        (["tokenizer.json"], ["--tokenizer-path", "/"], "fatal", "/ has no tokenizer"),
    ],
)
def test_a_model_has_a_tokenizer(subject, root, names, words, severity, message):
    found = subject(*words, config={})
    for name in names:
        (root / "model" / name).touch()
    rows = said(model.tokenizer(found))
    assert [row[0] for row in rows] == ([severity] if severity else [])
    assert all(message in row[1] for row in rows)
    assert [row[2] for row in rows] == {
        None: [], "fatal": ["copy the model's tokenizer there"], "warning": ["see that it is whole"]
    }[severity]  # fmt: skip


FOLDER = "put it into a folder and declare its absolute path"


@pytest.mark.failure("7.3", "7.4")
@pytest.mark.parametrize("what", ["draft model", "tokenizer"])
@pytest.mark.parametrize(
    ("environment", "secrets", "rows"),
    [
        ({"HF_HUB_OFFLINE": "1"}, {}, [("fatal", "which is not in {}/hub, and HF_HUB_OFFLINE keeps it away", FOLDER)]),
        ({"HF_HUB_OFFLINE": "yes"}, {}, [("fatal", "HF_HUB_OFFLINE keeps it away", FOLDER)]),
        ({"HF_HUB_OFFLINE": "0"}, {}, [("warning", "the start would fetch it", FOLDER),
                                       ("warning", "a gated one refuses that", "declare HF_TOKEN under secrets")]),
        ({}, {"HF_TOKEN": {}}, [("warning", "the start would fetch it", FOLDER)]),
        ({"HUGGING_FACE_HUB_TOKEN": "x"}, {}, [("warning", "the start would fetch it", FOLDER)]),
    ],
)  # fmt: skip
def test_7_3_and_7_4_a_repository_where_a_folder_is_wanted(subject, root, what, environment, secrets, rows):
    flag = {"draft model": "--speculative-draft-model-path", "tokenizer": "--tokenizer-path"}[what]
    environment = {"HF_HOME": str(root / "hf"), **environment}
    found = said(model.repositories(subject(flag, "some/name", environment=environment, secrets=secrets)))
    assert [row[0] for row in found] == [row[0] for row in rows]
    for (_severity, text, repair), (_same, part, what_to_do) in zip(found, rows, strict=True):
        assert (part.format(root / "hf") in text, what_to_do in repair, "some/name" in text) == (True, True, True)


def test_a_repository_that_is_on_the_host_is_named_by_its_folder(subject, root):
    at = root / "hf/hub/models--some--name/snapshots/abc"
    at.mkdir(parents=True)
    message = "the tokenizer is named as repository some/name; engines differ in what they ask for"
    for where in ({"HF_HOME": str(root / "hf")}, {"HF_HUB_CACHE": str(root / "hf/hub")}):
        environment = {"HF_HUB_OFFLINE": "1", **where}
        found = said(model.repositories(subject("--tokenizer-path", "some/name", environment=environment)))
        assert found == [("warning", message, f"declare {at}")]
    at.rmdir()  # a download that was broken off
    assert "HF_HUB_OFFLINE" in model.repositories(subject("--tokenizer-path", "some/name", environment=environment))[0][
        "message"
    ]
    assert model.repositories(subject("--tokenizer-path", str(at))) == []


@pytest.mark.parametrize(
    ("name", "layout"), [("sglang", "sglang/srt/models/kimi.py"), ("vllm", "vllm/model_executor/models/registry.py")]
)
def test_an_architecture_that_the_engine_has_no_class_for(subject, root, name, layout):
    config = {"architectures": ["KimiForCausalLM"]}
    found = subject(engine=name, venv=str(root / "venv"), config=config)
    assert model.architecture(found) == []  # a layout of another version
    path = root / "venv/lib/python3.11/site-packages" / layout
    path.parent.mkdir(parents=True)
    path.write_text("class KimiForCausalLM2:\n")
    (one,) = model.architecture(found)
    assert one["evidence"] == {"architecture": "KimiForCausalLM"}
    ((severity, message, repair),) = said([one])
    assert (severity, repair) == ("warning", "take a version of the engine that has it")
    assert "names no class KimiForCausalLM, the architecture of the model" in message
    path.write_text("class KimiForCausalLM:\n")
    assert model.architecture(found) == []
    for config in ({"architectures": ["X"], "speculators_config": {}}, {"architectures": None}, []):
        (root / "model/config.json").write_text(json.dumps(config))
        assert model.architecture(found) == []


@pytest.mark.failure("3.12")
def test_3_12_an_interpreter_that_is_missing_or_that_the_services_user_cannot_run(subject, root, monkeypatch):
    found = subject()
    program = root / "python"
    found.release["argv"] = [str(program), "-m", "x"]
    ((severity, message, repair),) = said(engine.engine(found))
    assert (severity, message) == ("fatal", f"{program} is missing or cannot be executed")
    assert "put sglang 0.5.23 into /opt/servewright/engines/sglang-0.5.23" in repair
    (root / "real").write_text("")
    (root / "real").chmod(0o755)
    program.symlink_to(root / "real")
    assert engine.engine(found) == []
    monkeypatch.setattr(users, "_refused", lambda name, paths, mode: [path for path in paths if mode(path) == os.X_OK])
    ((severity, message, repair),) = said(engine.engine(found))
    assert (severity, message) == ("fatal", f"user llm-tiny cannot run {program} ({root}/real)")
    found.release["argv"][0] = str(root / "real")
    assert engine.engine(found)[0]["message"] == f"user llm-tiny cannot run {root}/real"
    assert "folders above it" in repair
