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


def read(folder: Path, text: str | bytes, name: str = "hosts.yml"):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return positions.definitions(folder, VARIABLES)


def unread(folder: Path, text: str | bytes) -> list[str]:
    """What cannot be read of a file, with its place in it."""
    return [str(problem).removeprefix(f"{folder}/") for problem in read(folder, text)[1]]


def test_a_problem_names_file_and_line(tmp_path):
    (((_name, value, where),), problems) = read(tmp_path, GOOD)
    assert problems == []
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
    assert len(read(tmp_path, "all: {hosts: {a: {}}}\n")[0]) == 2


def test_variables_beside_an_inventory_file_count(tmp_path):
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/all.yml").write_text("servewright_services: []\n")
    (tmp_path / "hosts.yml").write_text("all: {hosts: {a: {}}}\n")
    assert len(positions.definitions(tmp_path / "hosts.yml", VARIABLES)[0]) == 1


@pytest.mark.parametrize("value", ["'{{ port }}'", "!vault |\n      $ANSIBLE_VAULT;1.1;AES256\n      61"])
def test_what_only_ansible_can_resolve_is_left_to_it(tmp_path, value):
    with pytest.raises(positions.NeedsAnsible):
        read(tmp_path, f"servewright_services:\n  - name: {value}\n")


UNREAD = [
    ("a: 1\nb: [\n", ["hosts.yml:3: is not YAML: did not find expected node content"]),
    ("a: 1\nb: é\n".encode("latin-1"), ["hosts.yml:2: is not UTF-8: byte 0xe9"]),
    ("name: a\n    name: b\n", ["hosts.yml:3: servewright_services[0].name: key 'name' stands here twice"]),
    ("? [b]\n    : c\n", ["hosts.yml:2: servewright_services[0]: a key must be text"]),
    ("name: 2024-99-99\n", ["name: '2024-99-99' cannot be read as timestamp (if it is text, write it in quotes"]),
    ("name: !!int ''\n", ["hosts.yml:2: servewright_services[0].name: '' cannot be read as int"]),
    ("name: !!bool foo\n", ["name: 'foo' cannot be read as bool"]),
    ("name: !!float foo\n", ["name: 'foo' cannot be read as float"]),
    ("name: !!binary é\n", ["name: 'é' cannot be read as binary"]),
    ("name: !!python/name:os.system\n", ["name: '' cannot be read as python/name:os.system"]),
    ("name: !!python/object:os.x {a: b}\n", ["name: the tag !!python/object:os.x is not read here"]),
    (f"name: {'9' * 5000}\n", [f"name: '{'9' * 76}... cannot be read as int"]),
    (f"name: 0x{'f' * 5000}\n", ["cannot be read as int"]),
    ("name: &a [*a, *a]\n", ["[0].name[0]: contains itself", "[0].name[1]: contains itself"]),
    (f"name: {'[' * 200}{']' * 200}\n", ["or is nested too deeply"]),
    (
        "name: !!int ''\n    port: !!int ''\n",
        [":2: servewright_services[0].name: ", ":3: servewright_services[0].port: "],
    ),
]


@pytest.mark.parametrize(("text", "expected"), UNREAD, ids=lambda value: str(value)[:40])
def test_what_cannot_be_read_is_named_with_its_line(tmp_path, text, expected):
    whole = isinstance(text, bytes) or text.startswith("a:")
    found = unread(tmp_path, text if whole else f"servewright_services:\n  - {text}")
    assert len(found) == len(expected)
    assert all(part in problem for part, problem in zip(expected, found, strict=True)), found


def test_files_that_cannot_be_read_do_not_hide_one_another(tmp_path):
    (tmp_path / "a.yml").write_text("a: [\n")
    (tmp_path / "b.yml").write_text("\tb: c\n")
    found = unread(tmp_path, "servewright_services: [{name: '{{ x }}'}]\n")
    assert [problem.partition(":")[0] for problem in found] == ["a.yml", "b.yml"]


def test_of_a_variable_that_stands_twice_the_last_counts_and_both_lines_are_an_error(tmp_path):
    twice = "all:\n  vars:\n    servewright_services: [1]\n    servewright_services: [2]\n"
    (definition,), problems = read(tmp_path, twice)
    assert definition.value == [2]
    assert [str(one) for one in problems] == [
        f"{tmp_path}/hosts.yml:4: servewright_services: key 'servewright_services' stands here twice"
    ]


def test_aliases_of_aliases_are_searched_once(tmp_path):
    lists = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30))
    (definition,), problems = read(tmp_path, f"a0: &a0 {{servewright_services: []}}\n{lists}")
    assert (definition.value, problems) == ([], [])


def test_a_file_that_contains_itself_is_searched_to_its_end(tmp_path):
    found, problems = read(tmp_path, "all: &a\n  hosts: {h1: *a}\n  vars: {servewright_services: []}\n")
    assert (len(found), problems) == (1, [])


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
