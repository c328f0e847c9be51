"""Is anybody else using the server? Read from the engine's own counters."""

from __future__ import annotations

import json
import re

from .http import HttpError

# vLLM: vllm/v1/metrics/loggers.py. SGLang: the fields of /v1/loads.
_GAUGE = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)
_FIELDS = ("num_running_reqs", "num_waiting_reqs")


def requests(release, http):
    """Number of requests that run or wait at the engine now, or None where it does not tell."""
    for path in release["endpoints"].get("load", ()):
        try:
            status, body = http.request("GET", path, timeout=5)
        except HttpError:
            return None
        if status == 200:
            return counted(body.decode("utf-8", "replace"))
    return None


def counted(text):
    """The same, from the text of the answer: Prometheus gauges or JSON."""
    gauges = _GAUGE.findall(text)
    if gauges:
        return int(sum(map(float, gauges)))
    try:
        loads = json.loads(text)["loads"]
        return sum(int(load.get(field) or 0) for load in loads for field in _FIELDS)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
