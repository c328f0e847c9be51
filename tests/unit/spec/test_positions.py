"""File and line of problems, from the YAML of an inventory."""

from __future__ import annotations

from pathlib import Path

import pytest

from servewright.spec import positions, validate
from servewright.spec.problems import InvalidError

VARIABLES = {"servewright_services"}
GOOD = """\
all:
  hosts: {a: {}}
  vars:
    servewright_services:
      - name: tiny
        engine: sglang
        version: 0.5.23
        model:
          path: /m
          served_name: m
        listen:
          prot: 30000
"""


def read(folder: Path, text: str, name: str = "hosts.yml"):
    (folder / name).write_text(text)
    return positions.definitions(folder, VARIABLES)


def test_a_problem_names_file_and_line(tmp_path):
    ((_name, value, where),) = read(tmp_path, GOOD)
    with pytest.raises(InvalidError) as caught:
        validate.services(value, where)
    assert [(p.file, p.line) for p in caught.value.problems] == [
        (str(tmp_path / "hosts.yml"), 11),  # port is missing: the line of its mapping
        (str(tmp_path / "hosts.yml"), 12),
    ]


def test_definitions_are_found_in_group_and_host_variables(tmp_path):
    for folder in ("group_vars", "host_vars/a"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.yml").write_text("servewright_services: []\n")
    assert len(read(tmp_path, "all: {hosts: {a: {}}}\n")) == 2


def test_variables_beside_an_inventory_file_count(tmp_path):
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("servewright_services: []\n")
    (tmp_path / "hosts.yml").write_text("all: {hosts: {a: {}}}\n")
    assert len(positions.definitions(tmp_path / "hosts.yml", VARIABLES)) == 1


@pytest.mark.parametrize("value", ["'{{ port }}'", "!vault |\n      $ANSIBLE_VAULT;1.1;AES256\n      61"])
def test_what_only_ansible_can_resolve_is_left_to_it(tmp_path, value):
    with pytest.raises(positions.NeedsAnsible):
        read(tmp_path, f"servewright_services:\n  - name: {value}\n")


def test_broken_yaml_names_its_line(tmp_path):
    with pytest.raises(InvalidError) as caught:
        read(tmp_path, "a: 1\nb: [\n")
    assert (caught.value.problems[0].line, "is not YAML" in str(caught.value)) == (3, True)


def test_a_key_that_stands_twice_is_an_error(tmp_path):
    with pytest.raises(InvalidError, match=r"hosts.yml:3.*stands here twice"):
        read(tmp_path, "servewright_services:\n  - name: a\n    name: b\n")


def test_a_key_that_is_no_text_is_an_error(tmp_path):
    with pytest.raises(InvalidError, match=r"hosts.yml:3.*a key must be text"):
        read(tmp_path, "servewright_services:\n  - name: a\n    ? [b]\n    : c\n")


def test_a_missing_inventory_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no inventory at"):
        positions.definitions(tmp_path / "nothing", VARIABLES)


def test_ansible_values_become_plain_data_with_positions():
    from ansible.parsing.dataloader import DataLoader

    loaded = DataLoader().load("a:\n  - name: x\n    port: 3\n", file_name="/inventory/x.yml")
    value, where = positions.from_ansible(loaded["a"], ("a",))
    assert value == [{"name": "x", "port": 3}]
    assert type(value[0]["name"]) is str
    assert where[("a", 0, "port")] == ("/inventory/x.yml", 3)
