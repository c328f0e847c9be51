"""Shared pydantic base and field types of the specification."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue


class Strict(BaseModel):
    """A mapping in which an unknown key is an error and numbers are never guessed from strings.

    Each is built with the first value of it: most mappings of a specification are left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("must be an absolute path (starting with '/')")
    if any(part in ("..", ".") for part in value.split("/")):
        raise ValueError("must not contain '.' or '..'")
    return value


def _printable(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain a NUL byte")
    return value


def _host_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(%[\w.-]+)?", value):
        raise ValueError("must be an IP address or the name of a host")
    return value


def _argument(value: JsonValue) -> JsonValue:
    for part in value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else ():
        _argument(part)
    return _printable(value) if isinstance(value, str) else value


def _environment_value(value: str) -> str:
    bad = sorted({char for char in value if (char < " " and char not in "\n\t") or char == "\x7f"})
    if bad:
        # env_value_is_valid() in systemd's env-util.c: the variable would be dropped with a line in the log.
        raise ValueError(f"must not contain the control character {bad[0]!r}: systemd drops such a variable")
    return value


Text = Annotated[str, AfterValidator(_printable)]
AbsolutePath = Annotated[str, AfterValidator(_printable), AfterValidator(_absolute)]
EnvironmentValue = Annotated[str, AfterValidator(_printable), AfterValidator(_environment_value)]
HostName = Annotated[str, AfterValidator(_host_name)]
Port = Annotated[int, Field(ge=1, le=65535)]
# From what no clock of systemd rounds to 0, which would mean for ever there, to a year.
Seconds = Annotated[float, Field(ge=0.001, le=31_536_000)]
Argument = Annotated[JsonValue, AfterValidator(_argument)]
EnvironmentName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
