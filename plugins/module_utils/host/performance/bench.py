"""The longer measurement of a running service: single stream, then a curve over streams at once; and its records."""

from __future__ import annotations

import contextlib
import os
import time

from .. import files, journal, paths
from ..errors import DamagedError
from . import baselines, measure
from .figures import summary

SCHEMA = 1
LEVELS = (1, 2, 4, 8, 16, 32)
REPEATS, MOST_REPEATS = 10, 40
RECORDS = 20  # kept on the host


def run(release, number, invocation, http, levels, seconds):
    """Measure for about `seconds` and give the record. Raises HttpError.

    On a server that others use it measures all the same: who asks for a bench sees in the record that it was shared.
    """
    meter = measure.Meter(release, http, seconds, beside=True)
    begin = time.monotonic()
    cold = meter.warm_up()
    figures = meter.single_stream(REPEATS, MOST_REPEATS)
    curve, left_out = [], []
    for level in levels:
        if time.monotonic() < meter.end:
            curve.append(meter.streams(level))
        else:
            left_out.append(level)
    return {
        "schema": SCHEMA,
        "service": release["service"],
        "release": number,
        "engine": release["engine"],
        "version": release["version"],
        "model": release["model"]["path"],
        "gpus": release["gpus"],
        "invocation": invocation,
        "time": journal.now(),
        "seconds": round(time.monotonic() - begin, 3),
        "figures": {name: summary(name, values) for name, values in figures.items()},
        "curve": curve,
        "left_out": left_out,
        "others": meter.most,
        "first_requests": cold,
        "workload": meter.workload(),
    }


def keep(record):
    """Store a record under the next number; the oldest beyond the latest so many go."""
    folder = _folder(record["service"])
    known = baselines.numbered(folder)
    number = max(known, default=0) + 1
    files.write_sealed(os.path.join(folder, f"{number}.json"), record)
    for old in known[: max(0, len(known) + 1 - RECORDS)]:
        files.remove(os.path.join(folder, f"{old}.json"))
    return number


def records(service):
    """What is known of the speed of a service: {"benches": records, "baselines": starts by release}, oldest first."""
    folder, found = _folder(service), []
    for number in baselines.numbered(folder):
        with contextlib.suppress(DamagedError):
            found.append({**files.read_sealed(os.path.join(folder, f"{number}.json")), "number": number})
    return {"benches": found, "baselines": baselines.all_of(service)}


def _folder(service):
    return os.path.join(paths.state(service), "benches")
