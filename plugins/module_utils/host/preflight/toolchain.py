"""The compilers that an engine calls while it runs: there, on the unit's PATH, and working."""

from __future__ import annotations

import contextlib
import os
import pkgutil

# toolchain_script is only read here, as text; the import has Ansible send it, too.
from .. import arguments
from . import engine_process, toolchain_script
from .check import fatal, warning

# What compiles at run time: distribution, distributions that make it needless, tools, what for, source.
NEEDS = (
    (
        "triton",
        (),
        ("Python.h",),
        "Triton builds a helper for each kernel",
        "triton/runtime/build.py, sgl-project/sglang#18644",
    ),
    (
        "flashinfer_python",
        ("flashinfer_jit_cache",),
        ("ninja", "nvcc", "c++"),
        "FlashInfer compiles its kernels when they are first used",
        "flashinfer/jit/cpp_ext.py, vllm-project/vllm#49497",
    ),
)
REPAIRS = {
    "ninja": "install ninja into the environment ({venv}/bin is on the unit's PATH), or the package ninja-build",
    "nvcc": "install the CUDA toolkit of the engine's CUDA version, or the package flashinfer-jit-cache",
    "c++": "install g++",
    "Python.h": "install gcc and the headers of the environment's Python (python3-dev)",
}


def toolchain(subject):
    """As the service's user, in its sandbox, with its PATH, two lines can be compiled wherever the engine will."""
    release = subject.release
    packages = _distributions(release["venv"])
    wanted = {}
    for name, instead, tools, why, _source in NEEDS:
        if name in packages and not packages.intersection(instead):
            wanted.update(dict.fromkeys(tools, (name, why)))
    if not wanted or not os.access(release["argv"][0], os.X_OK):
        return []
    code = (pkgutil.get_data(__package__, toolchain_script.__name__.rpartition(".")[2] + ".py") or b"").decode()
    answer = engine_process.ask(release, code, {"tools": sorted(wanted)}, 120)
    if "failure" in answer:
        message = f"it could not be seen whether the engine can compile: {answer['failure']}"
        return [warning(message, "the first start that compiles will show it", log=answer["log"])]
    found = []
    for tool, trouble in sorted(answer.items()):
        if trouble:
            name, why = wanted[tool]
            message = (
                f"{why}, and with the unit's PATH there is {trouble}"
                if trouble.startswith("no ")
                else f"{why}: {trouble}"
            )
            finding = fatal if _certain(release, name, tool) else warning
            found.append(finding(message, REPAIRS[tool].format(venv=release["venv"]), tool=tool))
    return found


def _certain(release, name, tool):
    """Whether the start needs it: on GPUs only, and FlashInfer only where it is chosen and not compiled yet."""
    if not release["gpus"]:
        return False
    if name != "flashinfer_python":
        return True
    backend = (arguments.value(release, "--attention-backend") or "").lower()
    sampler = release["environment"].get("VLLM_USE_FLASHINFER_SAMPLER") == "1"
    return (backend.startswith("flashinfer") or sampler) and not (tool == "nvcc" and _compiled(release))


def _compiled(release):
    top = release["environment"].get("FLASHINFER_WORKSPACE_BASE", "")
    return any(
        name.endswith(".so") for _folder, _folders, names in os.walk(os.path.join(top, ".cache")) for name in names
    )


def _distributions(venv):
    """Names of the packages of an environment, as their metadata folders spell them."""
    with contextlib.suppress(OSError):
        folder = engine_process.packages(venv)
        return {name.split("-")[0].lower() for name in os.listdir(folder) if name.endswith(".dist-info")}
    return set()
