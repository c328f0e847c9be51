"""The three artefacts, built once from a copy of the checkout that looks like one in daily use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

# What is never copied: it is large, and no build reads it.
SKIPPED = (".git", ".venv", ".cache", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", "artifacts")

# What running tests, editing and building leave behind, and what nobody wants to see published.
LITTER = (
    ".env",
    ".venv/lib/module.py",
    "artifacts/1/stdout",
    "dist/servewright-0.0.1.tar.gz",
    "plugins/__pycache__/left.cpython-311.pyc",
    "plugins/modules/__pycache__/left.cpython-311.pyc",
    "servewright-llm-0.0.1.tar.gz",
    "src/servewright/__pycache__/left.cpython-311.pyc",
)


@dataclass(frozen=True)
class Artefacts:
    """Files that a release publishes, and the checkout that they were built from."""

    checkout: Path
    wheel: Path
    sdist: Path
    wheel_from_sdist: Path
    collection: Path


@dataclass(frozen=True)
class Environment:
    """A virtual environment with a home folder of its own, away from the checkout."""

    python: Path
    home: Path

    @property
    def site_packages(self) -> Path:
        (folder,) = self.python.parent.parent.glob("lib/python*/site-packages")
        return folder

    def run(self, *words: str | Path, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run ``python WORDS``; no variable of Ansible, Python or pip's user settings leaks in."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
        return subprocess.run(
            [self.python, *words],
            cwd=cwd or self.home,
            env=inherited | {"HOME": str(self.home), "NO_COLOR": "1"} | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def list_tasks(self, playbook: str, **variables: str) -> str:
        """Output of ``ansible-playbook --list-tasks``, which names the file that Ansible found."""
        done = self.run("-m", "ansible", "playbook", playbook, "--list-tasks", "-i", "localhost,", **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def output_of(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_checkout(target: Path) -> None:
    shutil.copytree(ROOT, target, symlinks=True, ignore=shutil.ignore_patterns(*SKIPPED, "__pycache__"))


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Artefacts:
    checkout = tmp_path_factory.mktemp("built") / "checkout"
    copy_checkout(checkout)
    for name in LITTER:
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("litter")

    out, again = checkout.parent / "out", checkout.parent / "again"
    output_of(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel", "-o", out, cwd=checkout)
    output_of(BIN / "ansible-galaxy", "collection", "build", "--output-path", out, cwd=checkout)
    (sdist,) = out.glob("servewright-[0-9]*.tar.gz")
    (collection,) = out.glob("servewright-llm-*.tar.gz")
    shutil.unpack_archive(sdist, again)
    unpacked = again / sdist.name.removesuffix(".tar.gz")
    output_of(sys.executable, "-m", "build", "--no-isolation", "--wheel", "-o", again, cwd=unpacked)
    return Artefacts(checkout, next(out.glob("*.whl")), sdist, next(again.glob("*.whl")), collection)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Environment]:
    """Makes a fresh environment and installs the given words into it with pip."""

    def make(*install: str | Path, borrow: bool) -> Environment:
        """``borrow``: the dependencies are those of the environment that runs the tests, which saves minutes."""
        folder = tmp_path_factory.mktemp("environment")
        (folder / "home").mkdir()
        output_of(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
        made = Environment(folder / "venv" / "bin" / "python", folder / "home")
        if borrow:
            # As a path, not as a site folder: its own .pth files, and so this checkout, stay out.
            (made.site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
        if install:
            # Ansible is large, and little of it runs here: that is compiled when it does.
            pip = [sys.executable, "-m", "pip", "--python", made.python, "install", "-qq", "--no-compile"]
            # The borrowed packages count as installed, and with them the servewright of this checkout.
            borrowing = ["--no-deps", "--no-build-isolation", "--ignore-installed"] if borrow else []
            output_of(*pip, *borrowing, *install, cwd=folder)
        return made

    return make
