"""Folders that are built once and then only read."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.engines.environments.failure import EnvironmentFailure

_MARKER = ".complete"


def root() -> Path:
    """The cache folder: SERVEWRIGHT_ENGINE_CACHE, or one outside every checkout.

    It is an absolute path without symlinks, since test hosts see it bind-mounted at the very same path and a
    virtual environment works only at the path it was made for.
    """
    return Path(os.environ.get("SERVEWRIGHT_ENGINE_CACHE") or "/var/cache/servewright-engines").resolve()


def digest(parts: Iterable[bytes]) -> str:
    """12 hexadecimal digits that change with any of the parts."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:12]


def tree(folder: Path) -> list[bytes]:
    """Names and contents of the files in a folder, in a fixed order, as parts of a digest."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return [part for p in files for part in (str(p.relative_to(folder)).encode(), p.read_bytes())]


def built(folder: Path, build: Callable[[Path], None]) -> Path:
    """The folder, after `build(folder)` has completed there once, by this process or by another.

    It is built in place, because a virtual environment cannot be moved: a marker written last tells a whole one
    from the rest of an interrupted build, which is deleted.

    Raises EnvironmentFailure if the file system refuses something, and whatever `build` raises.
    """
    if (folder / _MARKER).exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(folder.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / _MARKER).exists():
                _build_anew(folder, build)
    except OSError as error:
        raise EnvironmentFailure(
            f"cannot build {folder}: {error}; SERVEWRIGHT_ENGINE_CACHE names another folder for the cache"
        ) from error
    return folder


def _build_anew(folder: Path, build: Callable[[Path], None]) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    # Engines run as other users in the test hosts, whatever umask this process has.
    umask = os.umask(0o022)
    try:
        folder.mkdir()
        build(folder)
        (folder / _MARKER).touch()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # gigabytes that no later build of another recipe would find
        raise
    finally:
        os.umask(umask)
