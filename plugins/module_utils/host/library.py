"""Putting this library on the host as one zipapp, at a path that never changes; upgrading it restarts nothing."""

from __future__ import annotations

import hashlib
import io
import marshal
import os
import pkgutil
import sys
import zipfile
from importlib.util import MAGIC_NUMBER, source_hash

from . import files, paths, systemd
from .errors import DamagedError

_NAME = "servewright_host"
_MAIN = f"from {_NAME}.main import main\nmain()\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time a zip can hold
_CHECKED_HASH = (0b11).to_bytes(4, "little")

RECOVER_UNITS = {
    paths.RECOVER_UNIT: f"""# Written by servewright.
[Unit]
Description=Finish interrupted servewright transactions
ConditionPathExists={paths.VAR}

[Service]
Type=oneshot
ExecStart={paths.PYTHON} -I {paths.HOST_PYZ} recover-all
SyslogIdentifier=servewright

[Install]
WantedBy=multi-user.target
""",
    "servewright-recover@.service": f"""# Written by servewright.
[Unit]
Description=Finish the interrupted servewright transaction of %i

[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart={paths.PYTHON} -I {paths.HOST_PYZ} recover --service %i
SyslogIdentifier=servewright
""",
}


def pack():
    """Bytes of the zipapp, made from the sources of the package this module was loaded from (a folder or a zip).

    Beside each source is its byte code for the interpreter that runs this: compiling takes longer than all else that
    a command does before it begins, and some run while a service is down. Another interpreter, or one that finds
    another source than the one compiled, takes the source.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, source in _sources().items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source)
            archive.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), _byte_code(name, source))
        archive.comment = MAGIC_NUMBER
    return buffer.getvalue()


def _byte_code(name, source):
    """Text of a .pyc file that holds for this very source (PEP 552, a checked hash)."""
    code = compile(source, f"{paths.HOST_PYZ}/{name}", "exec", dont_inherit=True)
    return MAGIC_NUMBER + _CHECKED_HASH + source_hash(source) + marshal.dumps(code)


def _sources():
    """Sources of the zipapp by name."""
    from . import main  # noqa: F401 - names it for Ansible, which sends only what is imported

    package = __name__.rsplit(".", 1)[0]
    names = sorted(_names(sys.modules[package].__path__))
    return {"__main__.py": _MAIN.encode()} | {
        f"{_NAME}/{name}": pkgutil.get_data(package, name) or b"" for name in names
    }


def _names(folders, prefix=""):
    """Files of a package and of those in it, relative to it."""
    yield prefix + "__init__.py"
    for item in pkgutil.iter_modules(folders):
        if item.ispkg:
            yield from _names([os.path.join(folder, item.name) for folder in folders], f"{prefix}{item.name}/")
        else:
            yield f"{prefix}{item.name}.py"


def _current():
    """Whether the zipapp on the host has these sources, and byte code for this interpreter."""
    try:
        with zipfile.ZipFile(paths.HOST_PYZ) as archive:
            found = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
            return archive.comment == MAGIC_NUMBER and found == _sources()
    except (OSError, zipfile.BadZipFile):
        return False


def install():
    """Bring the zipapp and the recovery units up to date; gives True when something was written."""
    changed = False
    files.reserve()
    if not _current():
        files.write(paths.HOST_PYZ, pack(), mode=0o755)
        changed = True
    reload_needed = False
    for name, text in RECOVER_UNITS.items():
        path = f"{paths.UNITS}/{name}"
        if files.read_bytes(path) != text.encode():
            files.write(path, text)
            reload_needed = True
    if reload_needed:
        systemd.enable(paths.RECOVER_UNIT)
        systemd.daemon_reload()
    there = {path: _digest(path) for path in _paths()}
    if _recorded() != there:
        files.write_sealed(paths.installed(), {"files": there})
    return changed or reload_needed


def edited():
    """What install() has put on the host and that is not so any more: {"<path>": "missing" or "edited"}.

    Compared is with what was written, and not with what this version would write: another one may have. Versions that
    kept no record of it wrote what is there.
    """
    known, found = _recorded(), {}
    for path in _paths():
        digest = _digest(path)
        if digest is None or digest != known.get(path, digest):
            found[path] = "edited" if digest else "missing"
    return found


def _paths():
    return [paths.HOST_PYZ, *(f"{paths.UNITS}/{name}" for name in RECOVER_UNITS)]


def _digest(path):
    data = files.read_bytes(path)
    return None if data is None else hashlib.sha256(data).hexdigest()


def _recorded():
    try:
        return (files.read_sealed(paths.installed()) or {"files": {}})["files"]
    except DamagedError:
        return {}
