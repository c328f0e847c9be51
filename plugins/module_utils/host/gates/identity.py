"""Is it the declared model that is served?"""

from __future__ import annotations

from ..http import HttpError
from .run import FAILED, PASSED


def gate(run):
    """The server serves the declared model: name, folder, context length and engine version, as far as it tells."""
    release = run.release
    entries = run.get(release["endpoints"]["models"]).get("data") or []
    names = [entry.get("id") for entry in entries]
    declared = release["model"]["served_name"]
    if declared not in names:
        return (
            FAILED,
            "serves {}, not {!r}".format(", ".join(map(repr, names)) or "no model", declared),
            {"models": names},
        )
    entry = entries[names.index(declared)]
    length, wanted = entry.get("max_model_len"), release["model"]["context_length"]
    if wanted is not None and length is not None and length != wanted:
        return FAILED, f"context length is {length}, declared is {wanted}", {"max_model_len": length}
    run.context = length or run.context
    path = entry.get("root")  # vLLM's; SGLang repeats the name there and has an endpoint of its own
    if release["endpoints"]["model"]:
        path = _told(run, "model", "model_path")
    version = _told(run, "version", "version")
    evidence = {"models": names, "path": path, "max_model_len": length, "version": version}
    if path is not None and path != release["model"]["path"]:
        return FAILED, "model folder is {}, declared is {}".format(path, release["model"]["path"]), evidence
    if version is not None and not same_version(str(version), release["version"]):
        return FAILED, "engine version is {}, declared is {}".format(version, release["version"]), evidence
    untold = [name for name, value in (("model folder", path), ("version", version)) if value is None]
    note = f" ({' and '.join(untold)} not told)" if untold else ""
    return PASSED, f"serves {declared!r}{note}", evidence


def same_version(told, declared):
    """False when an engine is of another version. What follows a '+' names a build of one (0.32.0+cpu).

    Builds from source count from a release of their own (0.0.0.dev1+g97c09da, 0.1.dev20051): those say nothing.
    """
    return "dev" in told or told.split("+")[0] == declared.split("+")[0]


def _told(run, endpoint, field):
    """A field of an endpoint; None when this version of the engine has no such endpoint or field.

    That is no fault: endpoints are renamed and go away between versions.
    """
    try:
        found = run.get(run.release["endpoints"][endpoint])
    except HttpError as error:
        if error.status == 404:
            return None
        raise
    return found.get(field) if isinstance(found, dict) else None
