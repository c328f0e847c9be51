"""Putting this library on the host as one zipapp, at a path that never changes; upgrading it restarts nothing."""

from __future__ import annotations

import io
import os
import pkgutil
import zipfile

from . import files, paths, systemd

_NAME = "servewright_host"
_MAIN = f"from {_NAME}.main import main\nmain()\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time a zip can hold: the same sources give the same bytes

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
    """Bytes of the zipapp, made from the sources of the package this module was loaded from (a folder or a zip)."""
    from . import main  # noqa: F401 - names it for Ansible, which sends only what is imported

    package = __name__.rsplit(".", 1)[0]
    path = __import__("sys").modules[package].__path__
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
        for name in sorted(_sources(path)):
            source = pkgutil.get_data(package, name) or b""
            archive.writestr(zipfile.ZipInfo(f"{_NAME}/{name}", _EPOCH), source)
    return buffer.getvalue()


def _sources(folders, prefix=""):
    """Files of a package and of those in it, relative to it."""
    yield prefix + "__init__.py"
    for item in pkgutil.iter_modules(folders):
        if item.ispkg:
            yield from _sources([os.path.join(folder, item.name) for folder in folders], f"{prefix}{item.name}/")
        else:
            yield f"{prefix}{item.name}.py"


def install():
    """Bring the zipapp and the recovery units up to date; gives True when something was written."""
    changed = False
    files.reserve()
    data = pack()
    if files.read_bytes(paths.HOST_PYZ) != data:
        files.write(paths.HOST_PYZ, data, mode=0o755)
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
    return changed or reload_needed
