"""Files that the process was started from: engine, NCCL, model, settings of NCCL that come from files."""

from __future__ import annotations

import os

from .. import surroundings
from .finding import PERSON, RESTART, compared, finding

_ACCEPT = "a restart through the gates takes it up and records it"


def find(subject):
    old = subject.recorded.get("files")
    if old is None:
        return
    new = subject.files
    model = subject.release["model"]["path"]
    if not os.path.isdir(model):
        yield finding(
            "model.files",
            f"the model's folder {model} is missing",
            [model],
            "the service cannot start again",
            f"bring {model} back",
            PERSON,
        )
    elif old["model"] != new["model"]:
        yield _changed(
            "model.files", f"files of the model in {model}", _names(old["model"], new["model"]), "restore them"
        )
    names = _names(old["engine"], new["engine"])
    if "single" in old:  # else an earlier version recorded only packages
        names += _names(old["single"], new["single"])
    if names:
        yield _changed(
            "engine.files",
            "files of the engine in {}".format(subject.release["venv"]),
            names,
            "install the engine again",
        )
    names = _names(old["nccl"], _nccl(old, new))
    if names:
        yield _changed("engine.nccl", "libnccl", names, "install the engine again")
    if old["nccl_conf"] != new["nccl_conf"]:
        yield finding(
            "nccl.conf",
            "NCCL takes other values from files: {}".format(
                ", ".join(sorted({path for _value, path in {**old["nccl_conf"], **new["nccl_conf"]}.values()}))
            ),
            compared(_values(old), _values(new)),
            "the next start communicates in another way than was verified",
            f"undo it, or declare the values under nccl.environment, which wins over files; {_ACCEPT}",
            RESTART,
        )


def _nccl(old, new):
    """Every libnccl as it is now, also those that processes took from outside of the engine's environment at commit."""
    known = {
        path: new["nccl"].get(path) or surroundings.engine.content(path)
        for path in old["nccl"]
        if os.path.lexists(path)
    }
    # Earlier versions did not look for it in every package.
    return {**new["nccl"], **known} if "single" in old else known


def _changed(name, what, names, repair):
    return finding(
        name,
        "{} changed: {}".format(what, ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")),
        names,
        "the next start does not run what was verified",
        f"{repair}; or, when the change is wanted, {_ACCEPT}",
        RESTART,
    )


def _values(facts):
    return {name: f"{value} ({path})" for name, (value, path) in facts["nccl_conf"].items()}


def _names(old, new):
    """What differs, in words."""
    words = {(True, False): "gone", (False, True): "new", (True, True): "changed"}
    return [
        f"{name} ({words[name in old, name in new]})"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) or (name in old) != (name in new)
    ]


UNDO_BY_ID = {}
