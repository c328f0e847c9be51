"""The two engine environments."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.engines.environments import cache
from tests.engines.environments.failure import EnvironmentFailure

_HERE = Path(__file__).parent
# The interpreter of the test hosts (Debian 12). A virtual environment points at its interpreter by path, so a
# pyenv or conda one of the same version would be a dangling link there.
_PYTHON = Path("/usr/bin/python3.11")


@dataclass(frozen=True)
class Recipe:
    """What makes an environment: pinned packages, and files laid over them."""

    engine: str
    version: str
    probe: str = field(repr=False)  # it makes nothing, so it is no part of the digest
    """Python code that fails unless the environment works."""

    @property
    def requirements(self) -> Path:
        return _HERE / f"{self.engine}.txt"

    @property
    def overlay(self) -> Path:
        return _HERE / "overlays" / self.engine

    @property
    def folder(self) -> Path:
        parts = [repr(self).encode(), self.requirements.read_bytes(), *cache.tree(self.overlay)]
        return cache.root() / "engines" / f"{self.engine}-{self.version}-{cache.digest(parts)}"

    def build(self, folder: Path) -> None:
        """Install everything into `folder`. Raises EnvironmentFailure."""
        if not _PYTHON.exists():
            raise EnvironmentFailure(f"{_PYTHON} is missing: apt-get install python3.11 python3.11-venv (Debian 12)")
        print(f"building {folder}, which takes some minutes and 3 GB", file=sys.stderr, flush=True)
        _run(_PYTHON, "-I", "-m", "venv", folder)
        python = folder / "bin" / "python"
        # --no-deps: what the engines declare would pull gigabytes of CUDA packages that no CPU test uses.
        options = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        _run(python, "-I", "-m", "pip", "install", *options, "--requirement", self.requirements)
        packages = folder / "lib" / "python3.11" / "site-packages"
        refuse_cuda(packages)
        shutil.copytree(self.overlay, packages, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        _run(python, "-I", "-c", self.probe)


# Without libnuma (package libnuma1) vLLM only logs a warning, then fails in the first operation of its own.
VLLM = Recipe("vllm", "0.32.0", "import ctypes, vllm.entrypoints.cli.main; ctypes.CDLL('libnuma.so.1')")
SGLANG = Recipe("sglang", "0.5.23", "import sglang.launch_server")


def ensure_vllm() -> Path:
    """The folder of a virtual environment with vLLM. Raises EnvironmentFailure."""
    return cache.built(VLLM.folder, VLLM.build)


def ensure_sglang() -> Path:
    """The folder of a virtual environment with SGLang. Raises EnvironmentFailure."""
    return cache.built(SGLANG.folder, SGLANG.build)


def _run(*command: str | Path) -> None:
    """Run Python, isolated (-I) from the caller's PYTHONPATH and user packages. Raises EnvironmentFailure."""
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode:
        raise EnvironmentFailure(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout[-3000:]}")


def refuse_cuda(packages: Path) -> None:
    """Raise EnvironmentFailure if the torch in this site-packages folder is a CUDA build."""
    # Read, not imported: a CUDA build without its CUDA packages does not even import.
    build = runpy.run_path(str(packages / "torch" / "version.py"))
    if build["cuda"] is not None:
        raise EnvironmentFailure(
            f"pip installed the CUDA build of torch {build['__version__']}; these environments need the CPU build. "
            "Offer pip the CPU build from the index that torch's publisher keeps for it (environment variable "
            "PIP_EXTRA_INDEX_URL), or a downloaded wheel of it (PIP_FIND_LINKS=folder), and run this again."
        )
