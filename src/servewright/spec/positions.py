"""Where a declaration stands: file and line of every key and item, from YAML text or from Ansible's own marks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import yaml

from servewright.spec.problems import UNREADABLE, Path, Problem, is_secret, short

PREFIX = "servewright_"
"""What the names of all variables begin with that servewright reads."""
DEEPEST = 50
"""Most mappings and lists in one another: more than any declaration has, and less than Python's own limit."""
_TAG = "tag:yaml.org,2002:"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NeedsAnsible(Exception):
    """The value holds a template, a vault or another tag that only Ansible can resolve."""


class Definition(NamedTuple):
    """One definition of a variable, and where each key of it stands."""

    name: str
    value: Any
    positions: dict[Path, tuple[str, int]]


def definitions(
    root: FilePath, variables: Collection[str], sure: bool = False
) -> tuple[list[Definition], list[Problem]]:
    """Every definition of one of the variables in the YAML files of an inventory (a file, or a folder and all below).

    Also gives the problems of what cannot be read, which a definition holds as UNREADABLE. Raises NeedsAnsible when a
    definition needs Ansible to be resolved, unless there are problems, and FileNotFoundError when there is no such
    inventory. With `sure` it also raises NeedsAnsible where a definition may be of no host, or the name of a variable
    misspelt.
    """
    if not root.exists():
        raise FileNotFoundError(f"no inventory at {root}")
    nodes: list[tuple[FilePath, Any]] = []
    problems: list[Problem] = []
    for file in _files(root):
        try:
            nodes.append((file, yaml.compose(file.read_bytes().decode(), Loader=_Loader)))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            if not (file.suffix in (".yml", ".yaml") or root.is_file()):
                raise NeedsAnsible(f"{file} is not YAML") from None
            problems.append(_not_yaml(error, str(file)))
    found: list[Definition] = []
    for file, node in nodes:
        reader = _Reader(str(file), problems)
        for name, value in reader.search(node, variables):
            positions: dict[Path, tuple[str, int]] = {}
            try:
                found.append(Definition(name, reader.value(value, (name,), positions), positions))
            except NeedsAnsible:
                if not problems:
                    raise
    if sure and not problems:
        _check_reach(root.parent if root.is_file() else root, nodes, variables)
    return found, problems


def _not_yaml(error: yaml.YAMLError | UnicodeDecodeError, file: str) -> Problem:
    if isinstance(error, UnicodeDecodeError):
        line = error.object[: error.start].count(b"\n")
        return Problem((), f"is not UTF-8: byte 0x{error.object[error.start]:02x}", file=file, line=line + 1)
    mark = getattr(error, "problem_mark", None)
    message = f"is not YAML: {getattr(error, 'problem', error)}"
    return Problem((), message, file=file, line=mark.line + 1 if mark else 1)


def _files(root: FilePath) -> list[FilePath]:
    if root.is_file():  # Ansible reads group_vars and host_vars beside the inventory file, too
        beside = (path for folder in ("group_vars", "host_vars") for path in (root.parent / folder).rglob("*"))
        return [root, *sorted(path for path in beside if path.is_file())]
    return sorted(
        path
        for path in root.rglob("*")
        if path.is_file()
        and path.suffix in (".yml", ".yaml", ".json", "")
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
    )


def _check_reach(folder: FilePath, nodes: list[tuple[FilePath, Any]], variables: Collection[str]) -> None:
    """Raise NeedsAnsible where what a file defines may be of no host, or of a variable whose name is misspelt."""
    owners = {file: _owner(file.relative_to(folder)) for file, _node in nodes}
    keys = {file: _keys(node) for file, node in nodes}
    known = {"all"}.union(*(keys[file] for file, owner in owners.items() if owner is None))
    for file, node in nodes:
        owner, defined = owners[file], {key for key in keys[file] if key.startswith(PREFIX)}
        if defined.difference(variables) or (
            defined and (owner not in known if owner else defined.intersection(_top(node)))
        ):
            raise NeedsAnsible(f"{file}: who it is for is not certain")


def _owner(file: FilePath) -> str | None:
    """The group or host whose variables are in a file of an inventory, or None for one that lists groups and hosts."""
    if len(file.parts) > 1 and file.parts[0] in ("group_vars", "host_vars"):
        return FilePath(file.parts[1]).stem if len(file.parts) == 2 else file.parts[1]
    return None


def _top(node: Any) -> list[str]:
    return [str(key.value) for key, _value in node.value] if isinstance(node, yaml.MappingNode) else []


def _keys(node: Any) -> set[str]:
    """All keys in a node, at any depth."""
    return {key for mapping in _mappings(node) for key in _top(mapping)}


def _mappings(node: Any, closed: Collection[str] = ()) -> Iterator[Any]:
    """The mappings in a node, at any depth but not below keys that are `closed`; each once, despite aliases."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield node
            waiting += [value for key, value in reversed(node.value) if str(key.value) not in closed]
        elif isinstance(node, yaml.SequenceNode):
            waiting += reversed(node.value)


class _Reader:
    """Reads values from the nodes of one file; what cannot be read is a problem and UNREADABLE."""

    def __init__(self, file: str, problems: list[Problem]):
        self._file, self._problems = file, problems

    def search(self, node: Any, variables: Collection[str]) -> Iterator[tuple[str, Any]]:
        """Name and node of each definition; the last of those in one mapping, which is the one that Ansible takes."""
        for mapping in _mappings(node, variables):
            found: dict[str, Any] = {}
            for key, value in mapping.value:
                if str(key.value) in variables:
                    self._check_first(key, found, (key.value,))
                    found[key.value] = value
            yield from found.items()

    def value(self, node: Any, path: Path, positions: dict[Path, tuple[str, int]], inside: tuple[Any, ...] = ()) -> Any:
        positions.setdefault(path, (self._file, node.start_mark.line + 1))
        if not node.tag.startswith(_TAG):
            raise NeedsAnsible(f"{self._file}:{node.start_mark.line + 1} holds a tag")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            return self._unreadable(node, path, f"the tag !!{node.tag.removeprefix(_TAG)} is not read here")
        if node in inside or len(inside) == DEEPEST:
            return self._unreadable(node, path, "contains itself, or is nested too deeply")
        inside = (*inside, node)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index), positions, inside) for index, item in enumerate(node.value)]
        out: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._unreadable(key, path, "a key must be text")
                continue
            if key.value == "<<":
                raise NeedsAnsible(f"{self._file}:{key.start_mark.line + 1} merges a mapping")
            place = (*path, key.value)
            self._check_first(key, out, place)
            positions[place] = (self._file, key.start_mark.line + 1)
            out[key.value] = self.value(value, place, positions, inside)
        return out

    def _scalar(self, node: Any, path: Path) -> Any:
        if "{{" in node.value or "{%" in node.value:
            raise NeedsAnsible(f"{self._file}:{node.start_mark.line + 1} holds a template")
        try:
            value = yaml.constructor.SafeConstructor().construct_object(node, deep=True)
            str(value)  # a number of too many digits cannot be shown
        except (yaml.YAMLError, AttributeError, LookupError, ValueError):  # PyYAML leaves it to what it calls
            text = "what stands here" if is_secret(path) else short(node.value)
            kind = f"{text} cannot be read as {node.tag.removeprefix(_TAG)}"
            return self._unreadable(node, path, kind, node.value, "if it is text, write it in quotes, without a tag")
        return value

    def _check_first(self, key: Any, before: Collection[str], path: Path) -> None:
        if key.value in before:
            self._unreadable(key, path, f"key {key.value!r} stands here twice")

    def _unreadable(self, node: Any, path: Path, message: str, value: Any = None, hint: str = "") -> Any:
        line = node.start_mark.line + 1
        self._problems.append(Problem(path, message, value, hint, self._file, line))
        return UNREADABLE


def from_ansible(value: Any, path: Path) -> tuple[Any, dict[Path, tuple[str, int]]]:
    """Plain data and positions of a variable as Ansible hands it to a plugin.

    ansible-core 2.19 and newer mark each value with its origin. The marks are not a public interface: where they
    cannot be read, problems are reported without a line.
    """
    try:
        from ansible._internal._datatag._tags import Origin
    except ImportError:
        Origin = None
    positions: dict[Path, tuple[str, int]] = {}

    def walk(item: Any, at: Path) -> Any:
        origin = Origin.get_tag(item) if Origin is not None else None
        if origin is not None and origin.path:
            positions.setdefault(at, (str(origin.path), int(origin.line_num or 0)))
        if isinstance(item, dict):
            for key in item:
                mark = Origin.get_tag(key) if Origin is not None else None
                if mark is not None and mark.path:
                    positions[(*at, str(key))] = (str(mark.path), int(mark.line_num or 0))
            return {str(key): walk(inner, (*at, str(key))) for key, inner in item.items()}
        if isinstance(item, (list, tuple)):
            return [walk(inner, (*at, index)) for index, inner in enumerate(item)]
        return _plain(item)

    return walk(value, path), positions


def _plain(item: Any) -> Any:
    for kind in (bool, int, float, str):
        if isinstance(item, kind):
            return item if type(item) is bool else kind(item)
    return item
