"""Releases on disk: immutable, numbered folders, each whole or not there at all."""

from __future__ import annotations

import os
import re
import shutil

from . import files, paths
from .errors import DamagedError, HostError, RefusedError
from .quoting import environment_file_line

_MARK = "@release@"


def numbers(service):
    """Numbers of the releases on disk, ascending."""
    try:
        return sorted(int(name) for name in os.listdir(paths.releases(service)) if name.isdigit())
    except FileNotFoundError:
        return []


def folder(service, number):
    return os.path.join(paths.releases(service), str(number))


def set_aside(service, number):
    """Folder of the foreign files that changed the unit of a release and were moved away by a repair of drift."""
    return os.path.join(folder(service, number), "set-aside")


def load(service, number):
    """A release as it was staged. Raises HostError when it is not there, DamagedError when it was changed."""
    release = files.read_sealed(os.path.join(folder(service, number), "release.json"))
    if release is None:
        raise HostError(
            "there is no release {} of {}; there are: {}".format(
                number, service, ", ".join(map(str, numbers(service))) or "none"
            )
        )
    if unit_on_disk(service, number) != unit_text(release, number):
        raise DamagedError(f"the unit in {folder(service, number)} was edited by hand or is missing")
    return release


def startable(service, number):
    """A release as load() gives it, whose secrets are there, too. Raises what load() raises."""
    release = load(service, number)
    lost = secrets_lost(release, number)
    if lost:
        raise DamagedError(f"{lost}; release {number} cannot be started without")
    return release


def unit_on_disk(service, number):
    data = files.read_bytes(os.path.join(folder(service, number), "unit"))
    return None if data is None else data.decode("utf-8", "replace")


def unit_text(release, number):
    """The unit of a release under its number. systemd ignores sections that begin with X-."""
    environment_line = "EnvironmentFile={}/environment".format(folder(release["service"], _MARK))
    text = release["unit"].replace(environment_line, environment_line.replace(_MARK, str(number)))
    return "%s\n[X-Servewright]\nRelease=%d\nDigest=%s\n" % (text.rstrip("\n"), number, release["digest"])


def secret_text(release, secrets):
    """Content of the environment file. `secrets` are the values the controller brought, by name.

    Raises RefusedError for a secret that cannot be had.
    """
    lines = []
    for name, reference in sorted(release["secrets"].items()):
        if "file" in reference:
            data = files.read_bytes(reference["file"])
            if data is None:
                raise RefusedError("secret {}: there is no file {}".format(name, reference["file"]))
            try:
                value = data.decode("utf-8").rstrip("\n")
            except UnicodeDecodeError:
                raise RefusedError("secret {}: {} is not text".format(name, reference["file"])) from None
        elif name in secrets:
            value = secrets[name]
        else:
            raise RefusedError(f"secret {name} has no value")
        if "\0" in value:
            raise RefusedError(f"secret {name} holds a NUL byte, which no environment variable can")
        lines.append(environment_file_line(name, value))
    return "".join(lines)


def secret_on_disk(service, number):
    return (files.read_bytes(os.path.join(folder(service, number), "environment")) or b"").decode("utf-8", "replace")


def secrets_lost(release, number):
    """What of the environment file of a release is not there, as text, or ""; only with all of it can it be started."""
    path = os.path.join(folder(release["service"], number), "environment")
    text = secret_on_disk(release["service"], number)
    names = [name for name in sorted(release["secrets"]) if not re.search(f'^{name}="', text, re.MULTILINE)]
    if not names:
        return ""
    return "{} has no value of {}".format(path, ", ".join(names)) if os.path.exists(path) else f"{path} is missing"


def find(release, secrets):
    """Number of a release on disk with the same content and secrets, or None."""
    for number in reversed(numbers(release["service"])):
        try:
            found = load(release["service"], number)
        except DamagedError:
            continue
        if found["digest"] == release["digest"] and secret_on_disk(release["service"], number) == secrets:
            return number
    return None


def stage(release, secrets):
    """Put a release on disk, inactive, under the next number, and give the number.

    `secrets` is the text of the environment file. Written beside and renamed, so that it is whole or not there.
    """
    service = release["service"]
    top = paths.releases(service)
    files.make_folder(top)
    number = max(numbers(service), default=0) + 1
    building = os.path.join(top, ".%d.new" % number)
    shutil.rmtree(building, ignore_errors=True)
    try:
        files.write(os.path.join(building, "unit"), unit_text(release, number))
        files.write(os.path.join(building, "environment"), secrets, mode=0o600)
        files.write_sealed(os.path.join(building, "release.json"), release)
        os.rename(building, folder(service, number))
        files.sync_folder(top)
    except OSError as error:
        raise HostError(f"cannot stage a release in {top}: {error.strerror}") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return number


def activate(service, number):
    """Make a release's unit the unit on disk (not yet the one that runs)."""
    files.write(paths.unit_file(service), unit_on_disk(service, number))


def committed(service):
    """The committed release and the one its process was started from: {"release", "started"}, or None."""
    return files.read_sealed(paths.committed(service))


def commit(service, number, started):
    files.write_sealed(paths.committed(service), {"release": number, "started": started})
