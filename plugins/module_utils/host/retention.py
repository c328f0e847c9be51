"""Old releases and journals go; the committed release, the one before it and what a transaction needs stay."""

from __future__ import annotations

import os
import shutil
import time

from . import journal, releases
from .errors import HostError
from .nccl import proof
from .performance import baselines


def prune(service):
    """Remove releases and journals beyond the service's `keep`: more than so many, or older than so many days."""
    pointer = releases.committed(service)
    if pointer is None:
        return
    keep = releases.load(service, pointer["release"])["keep"]
    oldest = time.time() - keep["days"] * 86400
    journals = journal.all_of(service)
    spared = {pointer["release"], pointer["started"], before(service, pointer["release"])}
    if journals:
        first = journals[-1].steps()[0]
        spared |= {first["release"], first["previous"]}
    for number in _outdated(releases.numbers(service), keep["releases"], oldest, lambda n: releases.folder(service, n)):
        # Foreign files that drift moved there are somebody's.
        if number not in spared and not os.path.exists(releases.set_aside(service, number)):
            shutil.rmtree(releases.folder(service, number), ignore_errors=True)
    for number in proof.numbers(service):
        if number not in releases.numbers(service):
            os.unlink(proof.path_of(service, number))
    baselines.prune(service)
    by_number = {entry.number: entry.path for entry in journals[:-1]}
    for number in _outdated(sorted(by_number), keep["releases"], oldest, by_number.get):
        os.unlink(by_number[number])


def before(service, current):
    """The release that was committed most lately before the current one and is still there, or None."""
    for entry in reversed(journal.all_of(service)):
        try:
            last = entry.steps()[-1:]
        except HostError:
            continue  # a damaged journal is reported by history, and says nothing here
        number = last[0]["release"] if last and last[0]["step"] == "committed" else current
        if number != current and number in releases.numbers(service):
            return number
    return None


def _outdated(numbers, count, oldest, path):
    """Of ascending numbers those beyond the newest `count`, or whose path was last written before `oldest`."""
    beyond = set(numbers[: max(0, len(numbers) - count)])
    return [number for number in numbers if number in beyond or os.stat(path(number)).st_mtime < oldest]
