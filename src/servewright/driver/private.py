"""A folder of a run's own, for nobody else's eyes, gone when the run is over."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def private_folder(keep: bool = False) -> Iterator[Path]:
    """A new folder of mode 0700, in memory where the system gives the user such a place. `keep`: leave it there.

    :raises OSError: no place to make a folder in
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(tempfile.mkdtemp(prefix="servewright-", dir=runtime if os.access(runtime, os.W_OK) else None))
    try:
        yield folder
    finally:
        if keep:
            # ansible-runner notes the environment with the command, and an environment holds secrets.
            for note in folder.glob("artifacts/*/command"):
                note.unlink()
            print(f"kept {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
