"""The JSON Schema of the variables that servewright reads from an inventory; the other files are made from it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field
from pydantic.json_schema import GenerateJsonSchema

from servewright.nccl.profiles import Profile
from servewright.spec.host import Host
from servewright.spec.service import Service

Schema = dict[str, Any]


class Variables(BaseModel):
    """Variables of a host, declared in its inventory; other variables may stand beside them."""

    servewright_services: list[Annotated[Service, Field(discriminator="engine")]] = Field(
        default_factory=list, description="The services of the host."
    )
    servewright_host: Host = Field(default_factory=Host, description="What the host declares about itself.")
    servewright_nccl_profiles: list[Profile] = Field(
        default_factory=list, description="NCCL profiles of your own, beside the built-in ones."
    )


class _Generator(GenerateJsonSchema):
    """Pydantic's own, which knows no default that is made anew each time, and lets any name through in a mapping."""

    def get_default_value(self, schema: Any) -> Any:
        default = schema["default_factory"]() if "default_factory" in schema else super().get_default_value(schema)
        # A mapping that is left out is an empty one: each of its keys states a default of its own.
        return default.model_dump(exclude_unset=True) if isinstance(default, BaseModel) else default

    def dict_schema(self, schema: Any) -> Schema:
        made = super().dict_schema(schema)
        return {**made, "additionalProperties": False} if "patternProperties" in made else made

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # it would repeat the key


def schema() -> Schema:
    """The schema of a file that defines the variables, such as one in group_vars or host_vars."""
    return Variables.model_json_schema(schema_generator=_Generator)


def as_json() -> str:
    """The same as the text of a file."""
    dialect = {"$schema": GenerateJsonSchema.schema_dialect}
    return json.dumps({**dialect, **schema()}, indent=2, ensure_ascii=False) + "\n"


def resolved(part: Schema, whole: Schema) -> Schema:
    """A part with what it refers to, and without null as an alternative. What it says itself wins."""
    own = {key: value for key, value in part.items() if key not in ("$ref", "anyOf")}
    if "$ref" in part:
        return {**whole["$defs"][part["$ref"].rpartition("/")[2]], **own}
    if "anyOf" in part:
        (other,) = [item for item in part["anyOf"] if item != {"type": "null"}]
        return resolved({**other, **own}, whole)
    return part


def values(part: Schema) -> Schema | None:
    """What the values of a mapping with free keys are like; None for anything else."""
    found = next(iter(part.get("patternProperties", {}).values()), part.get("additionalProperties"))
    return found if isinstance(found, dict) else None


def by_engine(part: Schema, whole: Schema) -> dict[str, Schema]:
    """A service, by engine."""
    return {name: resolved({"$ref": ref}, whole) for name, ref in part["discriminator"]["mapping"].items()}


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
