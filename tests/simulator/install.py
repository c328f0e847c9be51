"""Puts the engine simulator (a test double, never a product part) into the root of a test host."""

from __future__ import annotations

import compileall
import pathlib
import py_compile
import shutil
from collections.abc import Sequence

from . import model_files

HERE = pathlib.Path(__file__).parent
ENGINES = (("sglang", "0.5.22"), ("sglang", "0.5.23"), ("vllm", "0.31.0"), ("vllm", "0.32.0"))
ENGINE_ROOT = "opt/servewright/engines"
#: /dev stays writable for a unit with ProtectSystem=strict, /run does not
TMPFILES = "d /run/simulator 0755 root root\nd /run/simulator/gpu 1777 root root\nd /dev/simulator-gpu 1777 root root\n"
#: finds the interpreter beside itself, so the environment works inside a host and under any other root
VLLM_SCRIPT = """#!/bin/sh
'''exec' "${0%/*}/python" "$0" "$@"
' '''
from vllm.entrypoints.cli.main import main
main()
"""
#: it is asked every second while an engine loads; not compiled, and without -I and -S, it would take twice as long
NVIDIA_SMI = """#!/usr/bin/python3 -IS
import os
import sys
sys.path.insert(0, os.path.realpath(__file__).rsplit("/", 4)[0] + "/opt/simulator")
from nvidia_smi import main
sys.exit(main(sys.argv[1:]))
"""


def install(root: pathlib.Path, *, engines: Sequence[tuple[str, str]] = ENGINES, python_version: str = "3.11") -> None:
    """Write fake engine environments, nvidia-smi and a model under `root`; may be repeated.

    `python_version` is the minor version of the root's /usr/bin/python3.
    """
    for engine, version in engines:
        install_engine(root, engine, version, python_version)
    for folder in ("etc/simulator", "run/simulator/gpu"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "run/simulator/gpu").chmod(0o1777)
    tmpfiles = root / "usr/lib/tmpfiles.d/simulator.conf"
    tmpfiles.parent.mkdir(parents=True, exist_ok=True)
    tmpfiles.write_text(TMPFILES)
    copy_package(HERE / "engine_simulator", root / "opt/simulator/engine_simulator")
    shutil.copytree(HERE.parent / "recordings/nccl", root / "opt/simulator/nccl", dirs_exist_ok=True)
    smi = root / "usr/local/bin/nvidia-smi"
    smi.parent.mkdir(parents=True, exist_ok=True)
    smi.write_text(NVIDIA_SMI)
    compiled(pathlib.Path(shutil.copy(HERE / "nvidia_smi.py", root / "opt/simulator")))
    smi.chmod(0o755)
    model_files.write_model(root / "opt/simulator/model")


def engine_folder(root: pathlib.Path, engine: str, version: str) -> pathlib.Path:
    return root / ENGINE_ROOT / f"{engine}-{version}"


def copy_package(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copy and compile: a service user cannot write byte code, and without it each start costs 0.2 s more."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    compiled(target)


def compiled(path: pathlib.Path) -> None:
    """Compile a file, or all in a folder."""
    compile_ = compileall.compile_dir if path.is_dir() else compileall.compile_file
    compile_(path, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def install_engine(root: pathlib.Path, engine: str, version: str, python_version: str) -> None:
    """One environment, laid out as `python -m venv` lays it out."""
    folder = engine_folder(root, engine, version)
    bin_folder = folder / "bin"
    packages = folder / f"lib/python{python_version}/site-packages"
    bin_folder.mkdir(parents=True, exist_ok=True)
    packages.mkdir(parents=True, exist_ok=True)
    (folder / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python_version}\n"
    )
    for name, target in (("python", "/usr/bin/python3"), ("python3", "python")):
        link = bin_folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    copy_package(HERE / "engine_simulator", packages / "engine_simulator")
    copy_package(HERE / "facades" / engine, packages / engine)
    (packages / engine / "VERSION").write_text(version + "\n")
    library = packages / "nvidia/nccl/lib/libnccl.so.2"
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_bytes(b"not a library, but a file of this name that ranks map\n")
    info = packages / f"{engine}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {engine}\nVersion: {version}\nSummary: engine simulator (test double)\n"
    )
    (info / "INSTALLER").write_text("simulator\n")
    (info / "RECORD").write_text("")
    if engine == "vllm":
        script = bin_folder / "vllm"
        script.write_text(VLLM_SCRIPT)
        script.chmod(0o755)
