"""Where a declaration stands: file and line of every key and item, from YAML text or from Ansible's own marks."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import yaml

from servewright.spec.problems import InvalidError, Path, Problem

PREFIX = "servewright_"
"""What the names of all variables begin with that servewright reads."""
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NeedsAnsible(Exception):
    """The value holds a template, a vault or another tag that only Ansible can resolve."""


def definitions(
    root: FilePath, variables: set[str], sure: bool = False
) -> list[tuple[str, Any, dict[Path, tuple[str, int]]]]:
    """Every definition of one of the variables in the YAML files of an inventory (a file, or a folder and all below).

    Gives (variable, value, positions) for each. Raises InvalidError for YAML that cannot be read (with its line),
    NeedsAnsible when a definition needs Ansible to be resolved, FileNotFoundError when there is no such inventory.
    With `sure` it also raises NeedsAnsible where a definition may be of no host, or the name of a variable misspelt.
    """
    if not root.exists():
        raise FileNotFoundError(f"no inventory at {root}")
    nodes: list[tuple[FilePath, Any]] = []
    for file in _files(root):
        try:
            nodes.append((file, yaml.compose(file.read_text(encoding="utf-8"), Loader=_Loader)))
        except yaml.YAMLError as error:
            if file.suffix in (".yml", ".yaml") or root.is_file():
                mark = getattr(error, "problem_mark", None)
                message = f"is not YAML: {getattr(error, 'problem', error)}"
                raise _invalid((), message, str(file), mark.line if mark else 0) from None
            raise NeedsAnsible(f"{file} is not YAML") from None
        except UnicodeDecodeError:
            continue
    found: list[tuple[str, Any, dict[Path, tuple[str, int]]]] = []
    for file, node in nodes:
        for name, value in _search(node, variables):
            positions: dict[Path, tuple[str, int]] = {}
            found.append((name, _value(value, (name,), positions, str(file)), positions))
    if sure:
        _check_reach(root.parent if root.is_file() else root, nodes, variables)
    return found


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


def _invalid(path: Path, message: str, file: str, line: int) -> InvalidError:
    """One problem; `line` is counted from 0."""
    return InvalidError([Problem(path, message, file=file, line=line + 1)])


def _check_reach(folder: FilePath, nodes: list[tuple[FilePath, Any]], variables: set[str]) -> None:
    """Raise NeedsAnsible where what a file defines may be of no host, or of a variable whose name is misspelt."""
    owners = {file: _owner(file.relative_to(folder)) for file, _node in nodes}
    keys = {file: _keys(node) for file, node in nodes}
    known = {"all"}.union(*(keys[file] for file, owner in owners.items() if owner is None))
    for file, node in nodes:
        owner, defined = owners[file], {key for key in keys[file] if key.startswith(PREFIX)}
        if defined - variables or (defined and (owner not in known if owner else defined.intersection(_top(node)))):
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
    if not isinstance(node, yaml.MappingNode):
        return set()
    return set(_top(node)).union(*(_keys(value) for _key, value in node.value))


def _search(node: Any, variables: set[str]) -> list[tuple[str, Any]]:
    if isinstance(node, yaml.SequenceNode):
        return [hit for item in node.value for hit in _search(item, variables)]
    if not isinstance(node, yaml.MappingNode):
        return []
    hits: list[tuple[str, Any]] = []
    for key, value in node.value:
        hits += [(key.value, value)] if str(key.value) in variables else _search(value, variables)
    return hits


def _value(node: Any, path: Path, positions: dict[Path, tuple[str, int]], file: str) -> Any:
    positions.setdefault(path, (file, node.start_mark.line + 1))
    if isinstance(node, yaml.MappingNode):
        out: dict[Any, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _invalid(path, "a key must be text", file, key.start_mark.line)
            place = (*path, key.value)
            if key.value in out:
                raise _invalid(place, f"key {key.value!r} stands here twice", file, key.start_mark.line)
            if key.value == "<<":
                raise NeedsAnsible(f"{file}:{key.start_mark.line + 1} merges a mapping")
            positions[place] = (file, key.start_mark.line + 1)
            out[key.value] = _value(value, place, positions, file)
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, index), positions, file) for index, item in enumerate(node.value)]
    if not node.tag.startswith("tag:yaml.org,2002:") or "{{" in node.value or "{%" in node.value:
        raise NeedsAnsible(f"{file}:{node.start_mark.line + 1} holds a template or a tag")
    return yaml.constructor.SafeConstructor().construct_object(node, deep=True)


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
