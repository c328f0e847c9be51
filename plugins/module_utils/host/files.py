"""Durable files: a reader sees the old content or the new one, also after a power failure."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile

from . import paths
from .errors import DamagedError, HostError

RESERVE_BYTES = 1 << 20  # releases and journals are some ten KiB


def sync_folder(path):
    """Make renames and new names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path):
    """Make a folder and its parents."""
    try:
        os.makedirs(path, mode=0o755, exist_ok=True)
    except OSError as error:
        raise HostError(f"cannot make the folder {path}: {error.strerror}") from None


def write(path, data, mode=0o644):
    """Replace a file atomically: write beside it, fsync, rename, fsync the folder."""
    folder = os.path.dirname(path)
    make_folder(folder)
    try:
        making_room(lambda: _replace(folder, path, data if isinstance(data, bytes) else data.encode(), mode))
    except OSError as error:
        raise HostError(f"cannot write {path}: {error.strerror}") from None


def _replace(folder, path, data, mode):
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".new", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    sync_folder(folder)


def reserve():
    """Set space aside, so that a disk which fills up in the middle of a transaction cannot stop the way back."""
    for path in paths.RESERVES:
        make_folder(os.path.dirname(path))
        try:
            with open(path, "ab") as stream:
                os.posix_fallocate(stream.fileno(), 0, RESERVE_BYTES)
        except OSError as error:
            raise HostError(f"cannot set {RESERVE_BYTES >> 20} MiB aside in {path}: {error.strerror}") from None


def making_room(action):
    """Do a write; if the disk is full, give up what was set aside and do it once more."""
    try:
        return action()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        for path in paths.RESERVES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        return action()


def remove(path):
    """Remove a file if it is there, durably."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    sync_folder(os.path.dirname(path))


def read_bytes(path):
    """Content of a file, or None when there is no such file."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HostError(f"cannot read {path}: {error.strerror}") from None


def text(path):
    """Text of a file of others, as far as it is UTF-8; "" where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def canonical(value):
    """JSON text with one form for one value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def seal(value):
    """SHA-256 over the canonical JSON of a mapping without its seal."""
    return hashlib.sha256(canonical({k: v for k, v in value.items() if k != "seal"}).encode()).hexdigest()


def write_sealed(path, value, mode=0o644):
    """Write a mapping as JSON with a digest of itself, so that damage and hand edits are seen."""
    write(
        path,
        json.dumps(dict(value, seal=seal(value)), indent=1, sort_keys=True, ensure_ascii=False) + "\n",
        mode,
    )


def read_sealed(path):
    """The mapping that write_sealed wrote, or None when there is none. Raises DamagedError."""
    data = read_bytes(path)
    if data is None:
        return None
    try:
        value = json.loads(data.decode())
        intact = value.get("seal") == seal(value)
    except (ValueError, AttributeError):
        raise DamagedError(f"{path} is not what servewright wrote: it is cut short or was edited by hand") from None
    if not intact:
        raise DamagedError(f"{path} was edited by hand: its digest does not match its content")
    del value["seal"]
    return value
