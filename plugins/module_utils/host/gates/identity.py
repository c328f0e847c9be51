"""Is it the declared model that is served?"""

from __future__ import annotations

from .run import FAILED, PASSED


def gate(run):
    """The server serves the declared model: name, folder and, where the engine tells it, context length."""
    models = run.http.json("GET", run.release["endpoints"]["models"][0])
    entries = models.get("data") or []
    names = [entry.get("id") for entry in entries]
    declared = run.release["model"]["served_name"]
    if declared not in names:
        return (
            FAILED,
            "serves {}, not {!r}".format(", ".join(map(repr, names)) or "no model", declared),
            {"models": names},
        )
    entry = entries[names.index(declared)]
    length, wanted = entry.get("max_model_len"), run.release["model"]["context_length"]
    if wanted is not None and length is not None and length != wanted:
        return FAILED, f"context length is {length}, declared is {wanted}", {"max_model_len": length}
    path = entry.get("root")  # vLLM's; SGLang repeats the name there and has an endpoint of its own
    if run.release["endpoints"]["model"]:
        path = run.http.first(run.release["endpoints"]["model"]).get("model_path")
    if path != run.release["model"]["path"]:
        return FAILED, "model folder is {}, declared is {}".format(path, run.release["model"]["path"]), {"path": path}
    return PASSED, f"serves {declared!r}", {"models": names, "path": path, "max_model_len": length}
