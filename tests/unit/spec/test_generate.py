"""The schema, the reference page and the role say what the specification says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from servewright.spec import validate
from servewright.spec.generate.__main__ import FILES, ROOT, main
from servewright.spec.generate.schema import Variables, schema
from servewright.spec.host import Host
from servewright.spec.options import OPTIONS
from servewright.spec.service import SERVICES, Keep, Limits, Listen, Model, Nccl, Parallelism, Prompt, Verify
from tests.unit.spec.samples import service


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_files_of_this_checkout_are_up_to_date() -> None:
    assert main(["--check"]) == 0


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_differs_in_one_byte_is_out_of_date(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").touch()
    assert main(["--check"], tmp_path) == 1
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    path = tmp_path / name
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n", 1))
    capsys.readouterr()
    assert main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err == f"out of date, run make generate: {name}\n"


def test_an_installed_copy_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], tmp_path) == 1
    assert "checkout" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_variables_are_those_that_servewright_reads() -> None:
    assert set(Variables.model_fields) == {
        validate.SERVICES_VARIABLE,
        validate.HOST_VARIABLE,
        validate.PROFILES_VARIABLE,
    }


@pytest.mark.parametrize("name", ["llm.yml", "vllm.yml.example"])
def test_the_schema_takes_the_reference_inventory(name: str) -> None:
    jsonschema.validate(read(f"inventory/group_vars/{name}"), schema())


@pytest.mark.parametrize(
    "changes",
    [
        {"engin": "sglang"},
        {"engine": "tgi"},
        {"options": {"max_num_seqs": 8}},
        {"listen": {"port": "30000"}},
        {"listen": {"port": 0}},
        {"listen": {}},
        {"gpus": [-1]},
        {"environment": {"A": 1}},
        {"environment": {"1A": "x"}},
        {"secrets": {"A": {"value": "x"}}},
        {"name": "Kimi"},
    ],
)
def test_the_schema_refuses_what_the_specification_refuses(changes: dict[str, Any]) -> None:
    good, bad = service(), service(**changes)
    jsonschema.validate({"servewright_services": [good], "other": 1}, schema())
    with pytest.raises(validate.InvalidError):
        validate.services([bad])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"servewright_services": [bad]}, schema())


@pytest.mark.parametrize(
    ("place", "model"),
    [
        *(("", model) for model in SERVICES.values()),
        *(("options", model) for model in OPTIONS.values()),
        ("model", Model),
        ("parallelism", Parallelism),
        ("listen", Listen),
        ("nccl", Nccl),
        ("verify", Verify),
        ("verify.prompts", Prompt),
        ("limits", Limits),
        ("keep", Keep),
    ],
)
def test_the_role_documents_every_key_of_a_service(place: str, model: type[BaseModel]) -> None:
    options = role_options()["servewright_services"]["options"]
    for part in filter(None, place.split(".")):
        options = options[part]["options"]
    compare(options, model)


def test_the_role_documents_every_key_of_a_host() -> None:
    compare(role_options()["servewright_host"]["options"], Host)


def role_options() -> dict[str, Any]:
    options: dict[str, Any] = read("roles/service/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    return options


def compare(options: dict[str, Any], model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        option = options[name]
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            assert default == type(default)()  # so that its keys state all of it
            default = {}
        if isinstance(default, list):
            default = [item.model_dump() if isinstance(item, BaseModel) else item for item in default]
        assert option.get("required", False) == field.is_required(), name
        assert field.is_required() or option.get("default") == default, name
        assert option["type"] != "raw", name
        assert field.description in str(option["description"]), name


def test_the_role_passes_on_everything_it_documents() -> None:
    documented = {name for name in role_options() if name not in Variables.model_fields}
    tasks = (ROOT / "roles/service/tasks/main.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"servewright_\w+", tasks)) == documented
    # What has no default is left out where it is not given.
    missing = documented - set(read("roles/service/defaults/main.yml"))
    assert all(f"{name} | default(omit)" in tasks for name in missing)


def test_the_page_has_a_row_for_every_key() -> None:
    page = (ROOT / "docs/reference/services.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    definitions = schema()["$defs"]
    services = [set(definitions.pop(model.__name__)["properties"]) for model in SERVICES.values()]
    expected = [name for part in definitions.values() for name in part.get("properties", ())]
    assert sorted(rows) == sorted([*expected, *set.union(*services)])
