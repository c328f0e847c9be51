"""This package as one file that runs on a host with the Python of the engine's environment."""

from __future__ import annotations

import io
import zipfile
from importlib import resources

_MAIN = "import sys\nfrom measure.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest time a zip can hold: the same sources give the same bytes


def program() -> bytes:
    """A zipapp."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
        for item in sorted(resources.files(__package__).iterdir(), key=lambda item: item.name):
            if item.name.endswith((".py", ".c")):
                archive.writestr(zipfile.ZipInfo(f"measure/{item.name}", _EPOCH), item.read_bytes())
    return buffer.getvalue()
