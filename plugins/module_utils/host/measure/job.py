"""What the host adds to a request, and the files of a job."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import zipfile

from .. import commands, files, gpus, topology
from ..errors import HostError

PLUGINS = "/usr/local/lib/servewright"
_COMPILERS = ("cc", "gcc", "clang")


def complete(release, request, facts):
    """The request with what only the host knows. `facts` are those of gpus.query()."""
    ranks = release["parallelism"]["tensor"] * release["parallelism"].get("pipeline", 1)
    return dict(
        request,
        ranks=min(len(release["gpus"]), ranks) if ranks > 1 else len(release["gpus"]),
        topology="pcie" if request["held"].get("NCCL_P2P_DISABLE") == "1" else interconnect(release["gpus"]),
        config=os.path.join(release["model"]["path"], "config.json"),
        plugin=None,
        models=sorted({facts[index]["name"] for index in release["gpus"] if index in facts}),
    )


def interconnect(indices):
    """nvlink when nvidia-smi shows it between all the given GPUs, else pcie."""
    links = topology.pairs(topology.matrix(gpus.topology("-m")), indices).values()
    every = links and len(links) == len(indices) * (len(indices) - 1) // 2
    return "nvlink" if every and all(word.startswith("NV") for word in links) else "pcie"


def kind_of_host(request):
    """Name of the folder that results of this kind of host are kept in: 2x-nvidia-h200-nvlink."""
    models = "-".join(request["models"]) or "gpu"
    return re.sub(r"[^a-z0-9]+", "-", "{}x {} {}".format(request["ranks"], models, request["topology"]).lower())


def write(folder, request, program):
    files.make_folder(folder)
    files.write(os.path.join(folder, "measure.pyz"), base64.b64decode(program))
    files.write(os.path.join(folder, "request.json"), json.dumps(request, sort_keys=True))


def plugin(program):
    """Build the tuner plugin; gives its path, or None and why not. Named by its source, so it is never replaced."""
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(program))) as archive:
        source = archive.read("measure/tuner_plugin.c")
    target = f"{PLUGINS}/libservewright-tuner-{hashlib.sha256(source).hexdigest()[:12]}.so"
    if os.path.exists(target):
        return target, None
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return None, "no C compiler is here, so no tuner plugin: the best single environment is chosen by weight"
    part = target + ".part"
    command = [compiler, "-O2", "-shared", "-fPIC", "-x", "c", "-o", part, "-"]
    try:
        commands.run(command, text=source.decode())
    except HostError as error:
        return None, f"the tuner plugin was not built, so the best single environment is chosen by weight: {error}"
    os.chmod(part, 0o755)
    os.rename(part, target)
    return target, None
