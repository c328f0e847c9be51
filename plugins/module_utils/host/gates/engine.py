"""Did the engine resolve what was declared?"""

from __future__ import annotations

import re

from .. import systemd
from ..http import HttpError
from .run import FAILED, PASSED

PAGE_TOKENS = 128  # the largest page of a KV cache in use: engines round its size down to whole pages


def gate(run):
    """What is in force is what was declared, from the engine's own report, metrics or log.

    What this version does not report is named and no failure: fields come, go and are renamed. What is only a limit
    (KV-cache tokens and the like) is kept as evidence where nothing is declared.
    """
    expected, found, ranks = run.release["expected"], {}, set()
    info = (
        _info(run) if any(where == "info" for rows in run.release["truth"].values() for where, _path in rows) else None
    )
    for name, rows in run.release["truth"].items():
        for where, path in rows:
            values = from_info(info, path) if where == "info" else _from_text(run, where, path)
            if values:
                found[name] = values
                if where == "info":
                    ranks.add(name)
                break
    wrong = {
        name: found[name]
        for name in expected
        if name in found and not agrees(name, expected[name], found[name], name in ranks)
    }
    evidence = {name: shown(values) for name, values in found.items()}
    if wrong:
        text = ", ".join(
            f"{name} is {shown(values)}, declared is {expected[name]}" for name, values in sorted(wrong.items())
        )
        return FAILED, text, evidence
    seen = ", ".join(f"{name} {evidence[name]}" for name in sorted(expected) if name in found)
    untold = ", ".join(sorted(set(expected) - set(found)))
    return PASSED, "; ".join(filter(None, (seen, untold and f"not reported: {untold}"))) or "nothing declared", evidence


def _info(run):
    """The server info, or None where this version has none under a known name."""
    try:
        return run.get(run.release["endpoints"]["info"])
    except HttpError as error:
        if error.status in (401, 403, 404):
            return None
        raise


def from_info(info, path):
    """Values at a dotted path of the server info; `*` stands for every item of a list (data-parallel ranks).

    Missing parts, and ranks that are null or empty (sgl-project/sglang#34743), give nothing.
    """
    values = [info]
    for part in path.split("."):
        if part == "*":
            values = [item for value in values if isinstance(value, list) for item in value]
        else:
            values = [value[part] for value in values if isinstance(value, dict) and value.get(part) is not None]
    return [value for value in values if isinstance(value, (str, int, float))]


def _from_text(run, where, pattern):
    """Values that a pattern's one group finds, in the log of this start or in the metrics."""
    if where == "log":
        lines = systemd.log_text(run.state["InvocationID"], pattern)
    else:
        try:
            lines = run.http.text("/metrics").splitlines()
        except HttpError:
            lines = []
    return [match.group(1).replace(",", "") for match in (re.search(pattern, line) for line in lines) if match]


def agrees(name, declared, values, ranks=False):
    """Do all the values found agree with the declared one?

    A limit may be more than declared (it is rounded up, or given per rank); a size and a name must be the same. The
    attention backend that the log names may be one of several, for parts of the model; where the values are those of
    `ranks`, none may have another.
    """
    if name == "attention_backend" and not ranks:
        return any(_plain(value) == _plain(declared) for value in values)
    if name == "max_running_requests":
        return all(float(value) >= declared for value in values)
    if name == "max_total_tokens":
        return all(float(value) > declared - PAGE_TOKENS for value in values)
    if isinstance(declared, bool):
        return all(_plain(value) not in ("none", "false", "") for value in values)
    if isinstance(declared, int):
        return all(float(value) == declared for value in values)
    return all(_plain(value) == _plain(declared) for value in values)


# Names that engines give to what they call otherwise on the command line.
_ALIASES = {
    "half": "float16",
    "float": "float32",
    "bf16": "bfloat16",
    "fp8": "float8e4m3fn",
    "fp8e4m3": "float8e4m3fn",
    "float8e4m3": "float8e4m3fn",
    "fp8e5m2": "float8e5m2",
    "nextn": "eagle",  # SGLang 0.5.17: multi-token prediction runs as EAGLE
}


def _plain(value):
    text = re.sub(r"[^a-z0-9]", "", str(value).lower().replace("torch.", ""))
    return _ALIASES.get(text, text)


def shown(values):
    """Values for a message: one, or several when ranks differ."""
    different = list(dict.fromkeys(values))
    return different[0] if len(different) == 1 else different
