"""Validation without Ansible: what it finds, and when it leaves the matter to Ansible."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from servewright.cli import main, playbook

SERVICE: dict[str, Any] = {
    "name": "kimi",
    "engine": "sglang",
    "version": "0.5.23",
    "model": {"path": "/models/kimi", "served_name": "kimi"},
    "listen": {"port": 30000},
}
Validate = Callable[..., int]
PLAYBOOK = 42


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Validate:
    """Writes inventory/ with these files, validates it and gives the code; PLAYBOOK when Ansible would be asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(playbook, "run", lambda *_, **__: PLAYBOOK)
    (tmp_path / "inventory").mkdir()

    def run(*arguments: str, **files: Any) -> int:
        for name, content in files.items():
            text = content if isinstance(content, str) else yaml.safe_dump(content)
            (tmp_path / "inventory" / f"{name}.yml").write_text(text, errors="surrogateescape")
        return main.run(["validate", *arguments])

    return run


def hosts(*services: dict[str, Any], **variables: Any) -> dict[str, Any]:
    return {"all": {"hosts": {"gpu1": {}}, "vars": {"servewright_services": list(services), **variables}}}


def test_a_valid_inventory_names_its_services(validate: Validate, capsys: pytest.CaptureFixture[str]) -> None:
    other = SERVICE | {"name": "embedding", "listen": {"port": 30001}}

    assert validate(hosts=hosts(SERVICE, other)) == 0
    assert capsys.readouterr().out == "valid  kimi, embedding\n"


def test_every_problem_is_shown_with_its_place(validate: Validate, capsys: pytest.CaptureFixture[str]) -> None:
    text = yaml.safe_dump(hosts(SERVICE | {"gpu": [0], "version": 5}))
    rows = [row.strip(" -") for row in text.splitlines()]

    assert validate(hosts=text) == 3
    out = capsys.readouterr().out
    for row in ("gpu:", "version: 5"):
        assert f"inventory/hosts.yml:{rows.index(row) + 1}  INVALID" in out
    assert "did you mean 'gpus'?" in out
    assert "2 problems\nexit code 3: refused" in out


def test_problems_of_one_file_do_not_hide_those_of_another(
    validate: Validate, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate("--json", one=hosts(SERVICE | {"x": 1}), two=hosts(SERVICE | {"y": 1}), three=hosts(SERVICE)) == 3
    found = json.loads(capsys.readouterr().out)

    assert (found["exit_code"], found["services"]) == (3, ["kimi"])
    assert [Path(problem["file"]).name for problem in found["problems"]] == ["one.yml", "two.yml"]


def test_problems_of_host_profiles_services_and_files_are_shown_together(
    validate: Validate, capsys: pytest.CaptureFixture[str]
) -> None:
    good = hosts(SERVICE | {"x": 1}, servewright_host={"gpuz": 1}, servewright_nccl_profiles=[{"nam": "x"}])
    more = hosts(servewright_host={"gpuz": 1}, servewright_nccl_profiles={"a": "b"})
    latin = "a: caf\udce9\n"
    assert validate("--json", one=good, two=more, three="a: [\n", four=latin) == 3
    found = json.loads(capsys.readouterr().out)["problems"]

    assert {(Path(problem["file"]).stem, problem["path"]) for problem in found} == {
        ("one", "servewright_services[0].x"),
        ("one", "servewright_host.gpuz"),
        ("one", "servewright_nccl_profiles[0].nam"),
        ("one", "servewright_nccl_profiles[0].name"),
        ("one", "servewright_nccl_profiles[0].settings"),
        ("two", "servewright_host.gpuz"),
        ("two", "servewright_nccl_profiles"),
        ("three", ""),
        ("four", ""),
    }
    assert all(problem["line"] for problem in found)


def test_nothing_is_said_of_a_profile_that_may_be_in_a_file_that_cannot_be_read(
    validate: Validate, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate(hosts=hosts(SERVICE | {"nccl": {"profile": "own"}}), profiles="servewright_nccl_profiles: [\n") == 3
    assert "unknown NCCL profile" not in capsys.readouterr().out


@pytest.mark.parametrize("value", ["", "--json"])
@pytest.mark.parametrize(
    "fault",
    ["secrets: [{name: HF_TOKEN, value: CANARY}]", "secret: {HF_TOKEN: CANARY}", "secrets: {HF_TOKEN: !!int CANARY}"],
)
def test_a_secret_in_the_wrong_place_is_not_printed(
    validate: Validate, capsys: pytest.CaptureFixture[str], fault: str, value: str
) -> None:
    text = yaml.safe_dump(hosts(SERVICE)).replace("engine: sglang", f"{fault}\n      engine: sglang")
    assert validate(*filter(None, [value]), hosts=text) == 3
    assert "CANARY" not in "".join(capsys.readouterr())


def test_services_are_held_against_the_host_if_there_is_just_one(validate: Validate) -> None:
    service = SERVICE | {"gpus": [0, 1, 2, 3], "parallelism": {"tensor": 4}}

    assert validate(hosts=hosts(service, servewright_host={"gpus": 2})) == 3
    assert validate(hosts=hosts(service, servewright_host={"gpus": 2}), more=hosts(servewright_host={"gpus": 8})) == 0


def test_profiles_of_the_inventory_are_known(validate: Validate) -> None:
    service = SERVICE | {"nccl": {"profile": "own"}}
    own = {"name": "own", "settings": {"NCCL_ALGO": {"value": "Ring", "reason": "measured"}}}

    assert validate(hosts=hosts(service)) == 3
    assert validate(profiles={"all": {"vars": {"servewright_nccl_profiles": [own]}}}) == 0


def test_yaml_that_cannot_be_read_is_a_problem_with_a_line(
    validate: Validate, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate(hosts="all:\n  vars: [\n") == 3
    assert "inventory/hosts.yml:3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], yaml.safe_dump(hosts(SERVICE | {"version": "{{ version }}"}))),
        ([], "all: {vars: {servewright_services: !vault x}}"),
        ([], "all: {hosts: {gpu1: {}}}"),
        ([], yaml.safe_dump({"servewright_services": [SERVICE]})),  # a group of this name, to Ansible
        ([], yaml.safe_dump(hosts(SERVICE, servewright_hots={"gpus": 8}))),
        (["--limit", "gpu1"], yaml.safe_dump(hosts(SERVICE))),
        (["-e", "x=1"], yaml.safe_dump(hosts(SERVICE))),
        (["kimi"], yaml.safe_dump(hosts(SERVICE))),
        (["--", "--ask-vault-pass"], yaml.safe_dump(hosts(SERVICE))),
    ],
)
def test_what_only_ansible_can_tell_is_left_to_it(validate: Validate, arguments: list[str], text: str) -> None:
    assert validate(*arguments, hosts=text) == PLAYBOOK


def test_an_inventory_that_is_not_there_is_an_error(validate: Validate, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate("-i", "nowhere") == 1
    assert capsys.readouterr().out.startswith("error  no inventory at nowhere")


def test_json_holds_no_infinity(validate: Validate, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate("--json", hosts=hosts(SERVICE | {"limits": {"stop_timeout": float("inf")}})) == 3
    (problem,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["problems"]
    assert problem["value"] == "Infinity"


def test_an_empty_path_is_not_the_working_folder(validate: Validate, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate("-i", "", hosts=hosts(SERVICE)) == 1
    assert capsys.readouterr().out.startswith("error  no inventory at '': give its path with -i")


@pytest.mark.parametrize("name", ["llm.yml", "llm/services.yml", "gpu1.yml", "all.yml"])
def test_variables_of_a_group_that_nobody_is_in_are_left_to_ansible(
    validate: Validate, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "inventory" / "group_vars" / name
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump({"servewright_services": [SERVICE]}))

    assert validate(hosts="llm: {hosts: {gpu1: {}}}") == 0
    if name != "all.yml":
        assert validate(hosts="lmm: {hosts: {gpu2: {}}}") == PLAYBOOK


@pytest.mark.parametrize(
    ("name", "variable", "said"),
    [
        ("lmm", "servewright_services", "neither in host_vars nor for its groups (llm, all)"),
        ("llm", "servewright_service", "group_vars/llm.yml:2  INVALID  gpu1"),
        ("llm", "servewright_service", "did you mean 'servewright_services'?"),
    ],
)
def test_a_declaration_that_reaches_no_host_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, variable: str, said: str
) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "hosts.yml").write_text("llm: {hosts: {gpu1: {}}}")
    (tmp_path / "group_vars" / f"{name}.yml").write_text(yaml.safe_dump({variable: [SERVICE]}))

    assert main.run(["validate", "-i", str(tmp_path)]) == 3
    assert said in capsys.readouterr().out


def test_yaml_that_cannot_be_read_has_a_place_for_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "hosts.yml").write_text("llm: {hosts: {gpu1: {}}}")
    (tmp_path / "group_vars" / "llm.yml").write_text("servewright_services:\n  - name: kimi\n   engine: sglang\n")

    assert main.run(["status", "-i", str(tmp_path)]) == 3
    assert f"{tmp_path}/group_vars/llm.yml:3  INVALID" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ("{servewright_services: [{engine: [sglang]}]}", "must be the name of an engine, not a list"),
        ("{servewright_nccl_profiles: 5, servewright_services: []}", "must be a list of profiles, not a whole number"),
        ("{servewright_services: [{extra_args: &a {foo: [*a]}}]}", "contains itself, or is nested too deeply"),
        ("{servewright_services: [{description: 2024-99-99}]}", "'2024-99-99' cannot be read as timestamp"),
        ("{servewright_services: [{description: !!bool foo}]}", "'foo' cannot be read as bool"),
    ],
)
@pytest.mark.parametrize("command", ["validate", "render", "nccl lint"])
def test_what_nobody_can_read_has_a_place_for_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, variables: str, said: str
) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(f"all:\n  hosts: {{gpu1: {{}}}}\n  vars: {variables}\n")

    assert main.run([*command.split(), "-i", str(path)]) == 3
    shown = "".join(capsys.readouterr())
    assert f"{path}:3" in shown
    assert said in shown
