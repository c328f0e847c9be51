"""make says in one line what is missing on the machine, before it does anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with the Makefile that every user may enter, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        for file in ("Makefile", "pyproject.toml", "requirements-dev.txt"):
            shutil.copy(ROOT / file, path)
        yield path


def make(folder: Path, *words: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *words],
        cwd=folder,
        user=user,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that is not make's own."""
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    return line


def fake_python(folder: Path, *, version: str, ensurepip: bool) -> str:
    """Answers the questions that the Makefile asks as such a Python would."""
    path = folder / "python"
    fails_on = [*([] if ensurepip else ["ensurepip"]), *([] if version >= "3.11" else ["version_info"])]
    path.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        f"if sys.argv[1] == '--version': print('Python {version}')\n"
        f"sys.exit(any(word in sys.argv[-1] for word in {fails_on!r}))\n"
    )
    path.chmod(0o755)
    return f"PYTHON={path}"


def test_without_root(folder: Path) -> None:
    for target in ("test", "demo", "test-engines"):
        assert "needs root" in said(make(folder, target, user=NOBODY))


def test_without_python(folder: Path) -> None:
    assert "apt-get install -y python3-venv" in said(make(folder, "lint", "PYTHON=python-that-is-not-there"))


def test_with_an_old_python(folder: Path) -> None:
    line = said(make(folder, "lint", fake_python(folder, version="3.10.4", ensurepip=True)))
    assert "3.10.4" in line
    assert "3.11" in line


def test_without_venv(folder: Path) -> None:
    line = said(make(folder, "lint", fake_python(folder, version="3.11.2", ensurepip=False)))
    assert "apt-get install -y python3-venv" in line


def test_help_lists_every_target(folder: Path) -> None:
    listed = make(folder, "help").stdout
    for target in ("demo", "test", "test-engines", "lint", "molecule", "sanity", "generate", "lock", "clean", "help"):
        assert f"make {target} " in listed
