from __future__ import annotations

import json
from pathlib import Path

import pytest

from servewright.nccl import data, registry


def test_what_commands_read_is_what_the_pages_say() -> None:
    path = Path(registry.__file__).with_name("variables.json")
    assert path.read_text(encoding="utf-8") == registry.compiled(), "run make generate"


def test_an_entry_holds_its_row_and_the_defaults_of_its_page() -> None:
    page = data.load("variables/network.yml")
    row = json.loads(registry.compiled())["variables"]["NCCL_SOCKET_MAGIC"]
    assert (row["topology"], row["since"]) == (page["defaults"]["topology"], "2.30.7")


def test_a_name_that_stands_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "names", lambda _: ["variables/network.yml", "variables/network.yml"])
    with pytest.raises(ValueError, match=r"network.yml: NCCL_\w+ is declared twice"):
        registry.compiled()
