"""Durable files and their seals."""

from __future__ import annotations

import json

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import files
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import DamagedError, HostError


def test_a_sealed_file_comes_back(tmp_path):
    files.write_sealed(str(tmp_path / "a/b.json"), {"x": ["ü", 1.5, None]})
    assert files.read_sealed(str(tmp_path / "a/b.json")) == {"x": ["ü", 1.5, None]}


def test_no_file_is_none(tmp_path):
    assert files.read_sealed(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    "damage",
    [lambda text: text[: len(text) // 2], lambda text: text.replace("16", "17"), lambda text: "", lambda text: "[]"],
    ids=["cut", "edited", "empty", "other"],
)
def test_damage_is_named_and_not_guessed_at(tmp_path, damage):
    path = tmp_path / "x.json"
    files.write_sealed(str(path), {"channels": 16})
    path.write_text(damage(path.read_text()))
    with pytest.raises(DamagedError, match="edited by hand"):
        files.read_sealed(str(path))


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "x"
    files.write(str(path), "old")
    monkeypatch.setattr(
        files.os, "rename", lambda *names: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(HostError, match="No space left"):
        files.write(str(path), "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_the_seal_does_not_depend_on_the_order_of_keys():
    assert files.seal({"a": 1, "b": 2}) == files.seal(json.loads('{"b": 2, "a": 1, "seal": "x"}'))
