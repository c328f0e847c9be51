"""From untyped data to services, or every problem at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from servewright.nccl.profiles import Profile
from servewright.spec import rules
from servewright.spec.host import Host
from servewright.spec.nccl import PROFILES_VARIABLE as PROFILES_VARIABLE
from servewright.spec.problems import InvalidError, Path, Positions, Problem, nearest
from servewright.spec.service import SERVICES, Service

SERVICES_VARIABLE = "servewright_services"
HOST_VARIABLE = "servewright_host"
M = TypeVar("M", bound=BaseModel)


def services(
    data: Any,
    positions: Positions | None = None,
    host: Host | None = None,
    profiles: Sequence[Profile] = (),
    nccl_errors: bool = True,
) -> list[Service]:
    """The services of one host.

    `data` is the value of `servewright_services`: a list of mappings. Raises InvalidError with all problems; without
    `nccl_errors` those are left out that the NCCL linter finds, for a caller that shows them itself.
    """
    problems: list[Problem] = []
    valid: dict[int, Service] = {}
    if not isinstance(data, list):
        problems.append(Problem((SERVICES_VARIABLE,), f"must be a list of services, not {_kind(data)}", data))
        data = []
    for index, item in enumerate(data):
        found = _service(item, (SERVICES_VARIABLE, index))
        if isinstance(found, list):
            problems += found
        else:
            valid[index] = found
    problems += rules.check(valid, host, profiles, nccl_errors)
    if problems:
        raise InvalidError(problem.located(positions or {}) for problem in problems)
    return list(valid.values())


def host(data: Any, positions: Positions | None = None) -> Host:
    """What a host declares about itself (`servewright_host`). Raises InvalidError."""
    return _valid(Host, data or {}, (HOST_VARIABLE,), positions)


def profiles(data: Any, positions: Positions | None = None) -> list[Profile]:
    """NCCL profiles of the inventory (`servewright_nccl_profiles`). Raises InvalidError."""
    return [_valid(Profile, item, (PROFILES_VARIABLE, index), positions) for index, item in enumerate(data or [])]


def all_profiles(definitions: Iterable[tuple[Any, Positions]]) -> tuple[list[Profile], dict[Path, tuple[str, int]]]:
    """Profiles of several definitions of the variable as one list, and the positions in that list.

    Raises InvalidError.
    """
    found: list[Profile] = []
    places: dict[Path, tuple[str, int]] = {}
    for data, positions in definitions:
        for (_, *rest), at in positions.items():
            index = [int(rest[0]) + len(found), *rest[1:]] if rest else []
            places[(PROFILES_VARIABLE, *index)] = at
        found += profiles(data, positions)
    return found, places


def misspelt(names: Iterable[str]) -> list[Problem]:
    """Variables whose names are nearly that of one of the declared ones; nobody would read them."""
    declared = (SERVICES_VARIABLE, HOST_VARIABLE, PROFILES_VARIABLE)
    near = {name: get_close_matches(name, declared, n=1, cutoff=0.9) for name in names if name not in declared}
    return [
        Problem((name,), f"unknown variable {name!r}", None, f"did you mean {meant[0]!r}?")
        for name, meant in near.items()
        if meant and name != "servewright_hosts"  # of the playbooks: the hosts to work on
    ]


def _valid(model: type[M], data: Any, path: Path, positions: Positions | None) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidError(p.located(positions or {}) for p in _problems(error, model, path)) from None


def _service(item: Any, path: Path) -> Service | list[Problem]:
    if not isinstance(item, dict):
        return [Problem(path, f"must be a mapping, not {_kind(item)}", item)]
    engine = item.get("engine")
    if engine not in SERVICES:
        hint = nearest(str(engine), SERVICES) if "engine" in item else f"known: {', '.join(sorted(SERVICES))}"
        problem = Problem(
            (*path, "engine"),
            f"unknown engine {engine!r}" if "engine" in item else "is missing",
            engine,
            hint,
        )
        # The rest is still checked against an engine, so that one typo does not hide others.
        model: type[Service] = SERVICES[sorted(SERVICES)[0]]
        rest = _problems_of({**item, "engine": model.model_fields["engine"].annotation.__args__[0]}, model, path)  # type: ignore[union-attr]
        return [problem, *(p for p in rest if "options" not in p.path)]
    model = SERVICES[engine]
    try:
        return model.model_validate(item)
    except ValidationError as error:
        return _problems(error, model, path)


def _problems_of(item: Any, model: type[BaseModel], path: Path) -> list[Problem]:
    try:
        model.model_validate(item)
    except ValidationError as error:
        return _problems(error, model, path)
    return []


def _problems(error: ValidationError, model: type[BaseModel], prefix: Path) -> list[Problem]:
    problems = []
    for item in error.errors(include_url=False):
        path: Path = (*prefix, *item["loc"])
        value = item["input"]
        shown = _short(value)
        if path[-2:-1] == ("secrets",):
            value, shown = "(not shown)", "what stands here"  # most likely the secret itself
        if item["type"] == "extra_forbidden":
            problems.append(Problem(path, f"unknown key {item['loc'][-1]!r}", value, _other_key(model, item["loc"])))
        elif item["type"] == "missing":
            problems.append(Problem(path, "is missing"))
        elif item["type"] == "string_type" and isinstance(value, (int, float)):
            problems.append(Problem(path, f"{shown} is not text", value, f'write it in quotes: "{_yaml(value)}"'))
        elif item["type"] in _NAMES:
            found = "is empty" if value is None else f"{shown} is {_kind(value)}"
            message = f"{found}, not {_NAMES[item['type']]}"
            problems.append(Problem(path, message, value, _right_type(model, item)))
        elif item["type"] == "string_pattern_mismatch":
            message = f"{shown} does not match {item['ctx']['pattern']}"
            problems.append(Problem(path, message, value, _description(model, item["loc"])))
        else:
            message = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
            problems.append(Problem(path, f"{shown} {message[0].lower()}{message[1:]}", value))
    return problems


_NAMES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "string_type": "text",
}


def _right_type(model: type[BaseModel], item: Mapping[str, Any]) -> str:
    """What to write instead of a value of the wrong type."""
    kind, value = item["type"], item["input"]
    if kind in ("int_type", "float_type", "bool_type") and isinstance(value, str) and _PLAIN[kind].fullmatch(value):
        return "write it without quotes"
    keys = _fields(model, item["loc"])
    if keys:
        return f"{'each item is a mapping' if kind == 'list_type' else 'a mapping'} with the keys {', '.join(keys)}"
    return _description(model, item["loc"])


_PLAIN = {
    "int_type": re.compile(r"-?[0-9]+"),
    "float_type": re.compile(r"-?[0-9]+(\.[0-9]+)?"),
    "bool_type": re.compile("true|false"),
}
"""Text that is a value of the type as soon as its quotes are gone."""


def _other_key(model: type[BaseModel], loc: Sequence[int | str]) -> str:
    """What an unknown key may have been meant for: a near name, or the same name in another place."""
    name, siblings = str(loc[-1]), _fields(model, loc[:-1])
    hint = nearest(name, siblings)
    if hint.startswith("known"):
        elsewhere = [".".join(path) for path in _paths(model) if path[-1] == name and len(path) > 1]
        if len(elsewhere) == 1:
            return f"did you mean {elsewhere[0]!r}?"
        others = [engine for engine, other in SERVICES.items() if name in _fields(other, loc[:-1])]
        return "; ".join([*(f"{name!r} is an option of {engine}" for engine in others), hint])
    return hint


def _paths(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where each key of a model is, with those of the mappings in it; what is in lists is left out."""
    for name, field in model.model_fields.items():
        yield (*prefix, name)
        inner = _inner(field.annotation)
        if inner is not None and get_origin(field.annotation) is not list:
            yield from _paths(inner, (*prefix, name))


def _fields(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """Names of the keys allowed at a location of a model."""
    current: Any = model
    for part in loc:
        field = getattr(current, "model_fields", {}).get(part)
        if field is not None:
            current = _inner(field.annotation)
    return list(getattr(current, "model_fields", {}))


def _description(model: type[BaseModel], loc: Sequence[int | str]) -> str:
    """What the nearest key at or above a location is for, in the words of the reference page."""
    text, current = "", model
    for part in loc:
        field = getattr(current, "model_fields", {}).get(part)
        if field is not None:
            text, current = field.description or text, _inner(field.annotation) or current
    return text


def _inner(annotation: Any) -> Any:
    """The model inside an annotation such as `list[Model]` or `Model | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in getattr(annotation, "__args__", ()):
        found = _inner(part)
        if found is not None:
            return found
    return None


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), type(value).__name__)


_KINDS = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "nothing",
}


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
