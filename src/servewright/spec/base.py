"""Shared pydantic base and field types of the specification."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """A mapping in which an unknown key is an error and numbers are never guessed from strings.

    Each is built with the first value of it: most mappings of a specification are left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


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


def _environment_value(value: str) -> str:
    bad = sorted({char for char in value if (char < " " and char not in "\n\t") or char == "\x7f"})
    if bad:
        # env_value_is_valid() in systemd's env-util.c: the variable would be dropped with a line in the log.
        raise ValueError(f"must not contain the control character {bad[0]!r}: systemd drops such a variable")
    return value


Text = Annotated[str, AfterValidator(_printable)]
AbsolutePath = Annotated[str, AfterValidator(_printable), AfterValidator(_absolute)]
EnvironmentValue = Annotated[str, AfterValidator(_printable), AfterValidator(_environment_value)]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(gt=0)]
EnvironmentName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
