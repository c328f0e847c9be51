"""From untyped data to services, or every problem at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from servewright.nccl.profiles import Profile
from servewright.spec import rules
from servewright.spec.host import Host
from servewright.spec.nccl import PROFILES_VARIABLE as PROFILES_VARIABLE
from servewright.spec.problems import (
    NOT_SHOWN,
    UNREADABLE,
    InvalidError,
    Path,
    Positions,
    Problem,
    dotted,
    is_secret,
    near,
    nearest,
    short,
)
from servewright.spec.service import SERVICES, Service

if TYPE_CHECKING:
    from servewright.spec.positions import Definition

SERVICES_VARIABLE = "servewright_services"
HOST_VARIABLE = "servewright_host"
VARIABLES = (SERVICES_VARIABLE, HOST_VARIABLE, PROFILES_VARIABLE)
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


def services(
    data: Any,
    positions: Positions | None = None,
    host: Host | None = None,
    profiles: Sequence[Profile] | None = (),
    nccl_errors: bool = True,
) -> list[Service]:
    """The services of one host.

    `data` is the value of `servewright_services`: a list of mappings. Without `host` and `profiles` (None: not known)
    nothing is held against them. Raises InvalidError with all problems; without `nccl_errors` those are left out that
    the NCCL linter finds, for a caller that shows them itself.
    """
    known: dict[int, Service] = {}
    invalid = not isinstance(data, list)
    problems = [] if data is UNREADABLE or not invalid else [_wrong((SERVICES_VARIABLE,), "a list of services", data)]
    for index, item in enumerate([] if invalid else data):
        try:
            known[index] = _service(item, (SERVICES_VARIABLE, index))
        except _PartlyInvalidError as error:
            invalid = True
            problems += error.problems
            if error.known is not None:
                known[index] = error.known
    problems += rules.check(known, host, profiles, nccl_errors)
    if problems or invalid:
        raise InvalidError(problem.located(positions or {}) for problem in problems)
    return list(known.values())


def host(data: Any, positions: Positions | None = None) -> Host:
    """What a host declares about itself (`servewright_host`). Raises InvalidError."""
    return _valid(Host, {} if data is None else data, (HOST_VARIABLE,), positions)


def profiles(data: Any, positions: Positions | None = None) -> list[Profile]:
    """NCCL profiles of the inventory (`servewright_nccl_profiles`). Raises InvalidError with all problems."""
    data = [] if data is None else data
    if not isinstance(data, list):
        problem = _wrong((PROFILES_VARIABLE,), "a list of profiles", data).located(positions or {})
        raise InvalidError([] if data is UNREADABLE else [problem])
    problems: list[Problem] = []
    found = [
        attempt(problems, _valid, Profile, item, (PROFILES_VARIABLE, index), positions)
        for index, item in enumerate(data)
    ]
    valid = [profile for profile in found if profile is not None]
    if len(valid) < len(found):
        raise InvalidError(problems)
    return valid


def all_profiles(definitions: Iterable[tuple[Any, Positions]]) -> tuple[list[Profile], dict[Path, tuple[str, int]]]:
    """Profiles of several definitions of the variable as one list, and the positions in that list.

    Raises InvalidError with all problems.
    """
    found: list[Profile] = []
    places: dict[Path, tuple[str, int]] = {}
    problems: list[Problem] = []
    invalid = False
    for data, positions in definitions:
        valid = attempt(problems, profiles, data, positions)
        if valid is None:
            invalid = True
            continue
        for (_, *rest), at in positions.items():
            index = [int(rest[0]) + len(found), *rest[1:]] if rest else []
            places[(PROFILES_VARIABLE, *index)] = at
        found += valid
    if invalid:
        raise InvalidError(problems)
    return found, places


def inventory(
    definitions: Sequence[Definition], problems: list[Problem], nccl_errors: bool = True
) -> tuple[list[tuple[list[Service] | None, Positions]], Host | None, list[Profile]]:
    """What the files of an inventory declare: services by definition with their positions, the host, the profiles.

    Services that are not valid are None. What is wrong is added to `problems`, which may hold what could not be read.
    Which host a file is for is known to Ansible only, so of more than one none is known.
    """
    found, hosts, own = ([(one.value, one.positions) for one in definitions if one.name == name] for name in VARIABLES)
    known = [attempt(problems, host, *one) for one in hosts]
    named, of_profiles = attempt(problems, all_profiles, own) or ([], {})
    the_host = known[0] if len(known) == 1 else None
    # What else is wrong may be why a profile is not known.
    sure = None if problems else named
    valid: list[tuple[list[Service] | None, Positions]] = []
    for value, of_services in found:
        places = {**of_profiles, **of_services}
        valid.append((attempt(problems, services, value, places, the_host, sure, nccl_errors), places))
    return valid, the_host, named


def attempt(problems: list[Problem], function: Callable[..., T], *arguments: Any) -> T | None:
    """What a function gives, or None where it raises InvalidError, whose problems go to the others."""
    try:
        return function(*arguments)
    except InvalidError as error:
        problems += error.problems
        return None


def misspelt(names: Iterable[str]) -> list[Problem]:
    """Variables whose names are nearly that of one of the declared ones; nobody would read them."""
    near = {name: get_close_matches(name, VARIABLES, n=1, cutoff=0.9) for name in names if name not in VARIABLES}
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


class _PartlyInvalidError(InvalidError):
    """A service that is not valid. `known` is what is known of it; the attributes of faulty keys are not there."""

    def __init__(self, problems: Iterable[Problem], known: Service | None = None):
        super().__init__(problems)
        self.known = known


def _service(item: Any, path: Path) -> Service:
    """The service that is declared at a path. Raises _PartlyInvalidError."""
    if not isinstance(item, dict):
        raise _PartlyInvalidError([] if item is UNREADABLE else [_wrong(path, "a mapping", item)])
    engine = item.get("engine")
    if isinstance(engine, str) and engine in SERVICES:
        try:
            return SERVICES[engine].model_validate(item)
        except ValidationError as error:
            found = _problems(error, SERVICES[engine], path)
            raise _PartlyInvalidError(found, _known(SERVICES[engine], item, error)) from None
    # The rest is still checked against an engine, so that one typo does not hide others.
    meant = near(engine, SERVICES) if isinstance(engine, str) else None
    model = SERVICES[meant or min(SERVICES)]
    rest = {**item, "engine": meant or min(SERVICES)}
    if meant is None:
        rest.pop("options", None)
    problems = [] if engine is UNREADABLE else [_unknown_engine(item, path)]
    unknown: list[Path] = [] if meant else [("engine",), ("options",)]
    try:
        model.model_validate(rest)
    except ValidationError as error:
        raise _PartlyInvalidError(
            [*problems, *_problems(error, model, path)], _known(model, rest, error, unknown)
        ) from None
    raise _PartlyInvalidError(problems, _known(model, rest, None, unknown))


def _unknown_engine(item: Mapping[str, Any], path: Path) -> Problem:
    engine, known = item.get("engine"), f"known: {', '.join(sorted(SERVICES))}"
    if "engine" not in item:
        return Problem((*path, "engine"), "is missing", hint=known)
    if not isinstance(engine, str):
        return Problem((*path, "engine"), f"must be the name of an engine, not {_kind(engine)}", engine, known)
    return Problem((*path, "engine"), f"unknown engine {engine!r}", engine, nearest(engine, SERVICES))


_STAND_INS: dict[Path, Any] = {
    ("name",): "x",
    ("version",): "0",
    ("model",): {"path": "/", "served_name": "x"},
    ("model", "path"): "/",
    ("model", "served_name"): "x",
    ("listen",): {"port": 1},
    ("listen", "port"): 1,
}
"""Values for required keys that are faulty; nobody gets to see them."""


def _known(
    model: type[Service], item: Mapping[str, Any], error: ValidationError | None, unknown: Iterable[Path] = ()
) -> Service | None:
    """A service without the attributes of its faulty keys, and without those that a misspelt key was meant for.

    To read such an attribute raises AttributeError, so nothing is concluded from a value that nobody declared. None
    where even the rest is no service.
    """
    data, holes = deepcopy(dict(item)), set(unknown)
    for one in error.errors(include_url=False) if error else ():
        loc = one["loc"]
        field = _field(model, loc[:-1] if one["type"] == "extra_forbidden" else loc)
        if one["type"] == "extra_forbidden" and field == loc[:-1]:
            _mapping(data, field).pop(loc[-1])
            meant = _meant(model, loc)
            if meant is not None and meant[-1] not in _mapping(deepcopy(data), meant[:-1]):
                holes.add(meant)
        else:
            holes.add(field)
    holes = {hole for hole in holes if not any(hole[:end] in holes for end in range(len(hole)))}
    for hole in holes:
        inside = _mapping(data, hole[:-1])
        inside.pop(hole[-1], None)
        if hole == ("engine",):
            inside["engine"] = item["engine"]
        elif hole in _STAND_INS:
            inside[hole[-1]] = deepcopy(_STAND_INS[hole])
    try:
        service: Any = model.model_validate(data)
    except ValidationError:
        return None
    for hole in holes:
        holder = service
        for part in hole[:-1]:
            holder = getattr(holder, str(part))
        del holder.__dict__[hole[-1]]
    return service  # type: ignore[no-any-return]


def _mapping(data: Any, path: Path) -> Any:
    """The mapping at a path of other mappings, put there where there is none."""
    for part in path:
        if not isinstance(data.get(part), dict):
            data[part] = {}
        data = data[part]
    return data


def _field(model: type[BaseModel], loc: Sequence[int | str]) -> Path:
    """The key of a model at or around a location, however deep in models, but not in lists and mappings of any keys."""
    path: Path = ()
    current: Any = model
    for part in loc:
        field = getattr(current, "model_fields", {}).get(part)
        if field is None:
            break
        path = (*path, part)
        current = None if get_origin(field.annotation) in (list, dict) else _inner(field.annotation)
    return path


def _place(model: type[BaseModel], loc: Path) -> Path:
    """A location without the types that pydantic puts between the keys in the value of a flag."""
    field = _field(model, loc)
    flag = len(field) + 1
    return (*loc[:flag], *loc[flag + 1 :: 2]) if field[-1:] in (("extra_args",), ("speculative_config",)) else loc


def _wrong(path: Path, wanted: str, value: Any) -> Problem:
    return Problem(path, f"must be {wanted}, not {_kind(value)}", value)


def _problems(error: ValidationError, model: type[BaseModel], prefix: Path) -> list[Problem]:
    problems = []
    for item in error.errors(include_url=False):
        path: Path = (*prefix, *_place(model, item["loc"]))
        value = item["input"]
        if value is UNREADABLE:
            continue
        shown, kind = short(value), _kind(value)
        if is_secret(path, value):
            value, shown = NOT_SHOWN, "what stands here"  # most likely the secret itself
        if item["type"] == "extra_forbidden":
            problems.append(Problem(path, f"unknown key {item['loc'][-1]!r}", value, _other_key(model, item["loc"])))
        elif item["type"] == "missing":
            problems.append(Problem(path, "is missing"))
        elif item["type"] == "string_type" and isinstance(value, (int, float)):
            problems.append(Problem(path, f"{shown} is not text", value, f'write it in quotes: "{_yaml(value)}"'))
        elif item["type"] in _NAMES:
            found = "is empty" if value is None else f"{shown} is {kind}"
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


def _meant(model: type[BaseModel], loc: Sequence[int | str]) -> Path | None:
    """The key that an unknown one was most likely meant for: of a near name, or of the same name in another place."""
    name = str(loc[-1])
    close = near(name, _fields(model, loc[:-1]))
    if close is not None:
        return (*loc[:-1], close)
    elsewhere = [path for path in _paths(model) if path[-1] == name and len(path) > 1]
    return elsewhere[0] if len(elsewhere) == 1 else None


def _other_key(model: type[BaseModel], loc: Sequence[int | str]) -> str:
    """What to write instead of an unknown key."""
    name, around, meant = str(loc[-1]), tuple(loc[:-1]), _meant(model, loc)
    if meant is not None:
        return f"did you mean {dotted(meant[-1:] if meant[:-1] == around else meant)!r}?"
    others = [engine for engine, other in SERVICES.items() if name in _fields(other, around)]
    known = f"known: {', '.join(sorted(_fields(model, around)))}"
    return "; ".join([*(f"{name!r} is an option of {engine}" for engine in others), known])


def _paths(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where each key of a model is, with those of the mappings in it; lists and mappings of any keys are left out."""
    for name, field in model.model_fields.items():
        yield (*prefix, name)
        inner = _inner(field.annotation)
        if inner is not None and get_origin(field.annotation) not in (list, dict):
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
