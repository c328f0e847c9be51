"""Looks for compilers as a service would, and compiles two lines. Handed to the engine's interpreter as text."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile

LINES = {
    "Python.h": ("t.c", "#include <Python.h>\nint two(void) { return PY_MAJOR_VERSION; }\n"),
    "cc": ("t.c", "#include <stdio.h>\nint two(void) { return EOF; }\n"),
    "c++": ("t.cc", "#include <vector>\nint two() { return std::vector<int>(2).size(); }\n"),
    "nvcc": ("t.cu", "__global__ void two() {}\nint main() { two<<<1, 1>>>(); }\n"),
}


def find(tool):
    """Path of a tool, the way that those who call it look for it."""
    which, get = shutil.which, os.environ.get
    if tool in ("cc", "Python.h"):  # triton/runtime/build.py
        return get("CC") or which("gcc") or which("clang")
    if tool == "c++":
        return get("CXX") or which("c++") or which("g++")
    if tool == "nvcc":  # flashinfer/jit/cpp_ext.py
        home = get("CUDA_HOME") or get("CUDA_PATH")
        return which(os.path.join(home, "bin/nvcc")) if home else which("nvcc")
    return which(tool)


def trouble(tool, folder):
    """Why a tool would not work, or ""."""
    path = find(tool)
    if path is None:
        return "no C compiler" if tool in ("cc", "Python.h") else "no " + tool
    if tool not in LINES:
        return ""
    name, text = LINES[tool]
    source = os.path.join(folder, name)
    with open(source, "w") as stream:
        stream.write(text)
    include = ["-I", sysconfig.get_paths()["include"]] if tool == "Python.h" else []
    command = [path, "-c", source, "-o", source + ".o", *include]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return "%s cannot be run: %s" % (path, error)
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if "error" in line]
    return "%s cannot compile two lines: %s" % (path, (lines or ["exit code %d" % done.returncode])[0].strip())


def main(job):
    with tempfile.TemporaryDirectory() as folder:
        print("\n" + json.dumps({tool: trouble(tool, folder) for tool in job["tools"]}))


if "job" in globals():
    main(globals()["job"])
