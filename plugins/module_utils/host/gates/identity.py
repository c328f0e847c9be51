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
    # What follows a '+' names a build of the version (0.32.0+cpu).
    if version is not None and str(version).split("+")[0] != release["version"].split("+")[0]:
        return FAILED, "engine version is {}, declared is {}".format(version, release["version"]), evidence
    untold = [name for name, value in (("model folder", path), ("version", version)) if value is None]
    note = f" ({' and '.join(untold)} not told)" if untold else ""
    return PASSED, f"serves {declared!r}{note}", evidence


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
