"""Which copy of servewright is running, and whether Ansible would use the collection that belongs to it.

The package and the collection are one program in two artefacts. Ansible looks for a collection in its own
configured folders before it looks beside the package, so an old copy in ``~/.ansible/collections`` silently
wins over the one that pip installed. ``check`` notices that before anything runs. It repeats Ansible's rules
instead of importing Ansible, which would double the time that a short command takes.
"""

from __future__ import annotations

import configparser
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypedDict

from servewright import __version__

COLLECTION = "servewright.llm"
_COLLECTION_FOLDER = Path("ansible_collections", *COLLECTION.split("."))
_PACKAGE = Path(__file__).resolve().parent


class ArtefactError(Exception):
    """The package and the collection that Ansible would use do not belong together."""


class Description(TypedDict):
    """The running copy. Paths are absolute; the collection is None where Ansible finds none."""

    version: str
    mode: Literal["editable", "installed"]
    package_path: str
    collection_path: str | None
    collection_version: str | None


def collection_root() -> Path:
    """Folder of the collection that belongs to the running package, with the ``templates/`` to render.

    :raises ArtefactError: the package was copied somewhere without its collection
    """
    for root in (_installed_root(), _checkout_root()):
        if (root / "galaxy.yml").is_file():
            return root
    raise ArtefactError(f"no collection {COLLECTION} belongs to the package {_PACKAGE}: install it with pip")


def describe() -> Description:
    """The running package, and the collection that Ansible would use with it.

    :raises ArtefactError: as ``collection_root``
    """
    collection = ansible_collection()
    return {
        "version": __version__,
        "mode": "installed" if collection_root() == _installed_root() else "editable",
        "package_path": str(_PACKAGE),
        "collection_path": str(collection) if collection else None,
        "collection_version": collection_version(collection) if collection else None,
    }


def check() -> None:
    """Refuse to work with a collection that is not the package's own.

    :raises ArtefactError: Ansible would use no collection, one of another version, or, where the package is
        editable and so changes without changing its version, one at another place
    """
    found = describe()
    package = f"servewright {found['version']} at {found['package_path']}"
    if found["collection_path"] is None:
        raise ArtefactError(
            f"Ansible finds no collection {COLLECTION} to go with {package}: install servewright with pip "
            "beside ansible-core, and leave collections_scan_sys_path at its default"
        )
    version = found["collection_version"]
    stale = found["mode"] == "editable" and Path(found["collection_path"]).resolve() != collection_root()
    if stale or version != found["version"]:
        raise ArtefactError(
            f"{package} would run with another copy of its collection, {version or 'of unknown version'} at "
            f"{found['collection_path']}: remove that copy, or take its folder out of collections_path "
            "(ANSIBLE_COLLECTIONS_PATH, ansible.cfg)"
        )


def ansible_collection() -> Path | None:
    """Folder of the collection that Ansible, started here and now by this Python, would use, or None."""
    for path in _search_path():
        root = path.parent if path.name == "ansible_collections" else path
        if (root / _COLLECTION_FOLDER).is_dir():
            return root.absolute() / _COLLECTION_FOLDER
    return None


def collection_version(root: Path) -> str | None:
    """Version in MANIFEST.json (as ansible-galaxy installs), else in galaxy.yml, or None if unreadable."""
    import yaml

    try:
        if (root / "MANIFEST.json").exists():
            info: Any = json.loads((root / "MANIFEST.json").read_text(encoding="utf-8"))["collection_info"]
        else:
            info = yaml.safe_load((root / "galaxy.yml").read_text(encoding="utf-8"))
        return str(info["version"])
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        return None


def _installed_root() -> Path:
    return _PACKAGE.parent / _COLLECTION_FOLDER


def _checkout_root() -> Path:
    return _PACKAGE.parents[1]


def _search_path() -> Iterator[Path]:
    """Where Ansible looks, in its order: environment, ansible.cfg or default, then sys.path."""
    config_file = _ansible_cfg()
    config = _defaults_section(config_file)

    if (listed := os.environ.get("ANSIBLE_COLLECTIONS_PATH")) is not None:
        yield from _paths(listed, Path.cwd())
    elif config_file and "collections_path" in config:
        yield from _paths(config["collections_path"], config_file.parent)
    else:
        home = os.environ.get("ANSIBLE_HOME") or config.get("home") or "~/.ansible"
        yield from _paths(f"{home}/collections:/usr/share/ansible/collections", Path.cwd())

    scan = os.environ.get("ANSIBLE_COLLECTIONS_SCAN_SYS_PATH") or config.get("collections_scan_sys_path")
    if (scan or "yes").lower() in {"1", "on", "t", "true", "y", "yes"}:
        yield from map(Path, sys.path)


def _paths(listed: str, base: Path) -> Iterator[Path]:
    for path in listed.replace("{{CWD}}", str(Path.cwd())).split(":"):
        yield _expand(path, base)


def _expand(path: str, base: Path) -> Path:
    # Not Path.expanduser, which fails on a user that does not exist where Ansible keeps the name as it is.
    return base / os.path.expanduser(os.path.expandvars(path))  # noqa: PTH111


def _ansible_cfg() -> Path | None:
    """The ansible.cfg that Ansible reads: the first that exists; they are never merged."""
    cwd = Path.cwd()
    candidates = [_expand("~/.ansible.cfg", cwd), Path("/etc/ansible/ansible.cfg")]
    # Ansible ignores the file in a folder that everyone may write to.
    if not cwd.stat().st_mode & stat.S_IWOTH:
        candidates.insert(0, cwd / "ansible.cfg")
    if (named := os.environ.get("ANSIBLE_CONFIG")) is not None:
        path = _expand(named, cwd)
        candidates.insert(0, path / "ansible.cfg" if path.is_dir() else path)
    return next((path for path in candidates if os.access(path, os.R_OK)), None)


def _defaults_section(config_file: Path | None) -> dict[str, str]:
    """The keys of [defaults]. A broken file counts as empty here: Ansible itself reports it."""
    parser = configparser.ConfigParser(inline_comment_prefixes=(";",), interpolation=None)
    try:
        if config_file:
            parser.read(config_file, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return {}
    return dict(parser["defaults"]) if parser.has_section("defaults") else {}
