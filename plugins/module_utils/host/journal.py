"""The journal of a transaction: one JSON line a step, on disk before the step is done."""

from __future__ import annotations

import datetime
import errno
import json
import os
import time

from . import files, paths
from .errors import DamagedError, HostError

FINAL = ("committed", "restored", "rollback_failed", "measured", "not_measured")


def now():
    """Time in UTC, ISO 8601 with milliseconds."""
    return at(time.time())


def at(moment):
    """The same, of a time in seconds since the epoch."""
    return datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).isoformat(timespec="milliseconds")


class Journal:
    """Steps of one transaction of one service."""

    def __init__(self, path):
        self.path = path
        self.going_back = False

    @classmethod
    def new(cls, service):
        """The journal of a new transaction; ids sort by time and never repeat."""
        top = paths.transactions(service)
        files.make_folder(top)
        last = max([int(name.split(".")[0]) for name in os.listdir(top) if name.endswith(".jsonl")], default=0)
        return cls(os.path.join(top, "%06d.jsonl" % (last + 1)))

    @classmethod
    def by_id(cls, service, number):
        return cls(os.path.join(paths.transactions(service), "%06d.jsonl" % number))

    @property
    def service(self):
        return os.path.basename(os.path.dirname(os.path.dirname(self.path)))

    @property
    def number(self):
        return int(os.path.basename(self.path).split(".")[0])

    def step(self, step, **facts):
        """Write a step durably."""
        entry = dict(facts, time=now(), step=step)
        line = json.dumps(dict(entry, seal=files.seal(entry)), sort_keys=True, ensure_ascii=False) + "\n"
        try:
            files.making_room(lambda: self._append(line.encode()))
        except OSError as error:
            if not self.going_back:
                raise HostError(f"cannot write {self.path}: {error.strerror}") from None
            # The way back is not given up for want of a line about it.
            print(f"{self.service}: {step} (not in the journal: {error.strerror})", flush=True)
        return entry

    def _append(self, line):
        new = not os.path.exists(self.path)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            written = os.pread(handle, os.fstat(handle).st_size, 0)
            end = written.rfind(b"\n") + 1  # a line that a power failure cut short is written over
            os.ftruncate(handle, end)
            if os.pwrite(handle, line, end) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(handle)
        finally:
            os.close(handle)
        if new:
            files.sync_folder(os.path.dirname(self.path))

    def steps(self):
        """All steps, oldest first. A last line that a power failure cut short was never done and is left out.

        Raises DamagedError when a line was edited.
        """
        lines = (files.read_bytes(self.path) or b"").split(b"\n")
        out = []
        for position, line in enumerate(lines[:-1]):
            try:
                entry = json.loads(line.decode())
                intact = entry["seal"] == files.seal(entry)
            except (ValueError, KeyError, TypeError):
                intact = False
            if not intact:
                raise DamagedError("%s line %d was edited by hand" % (self.path, position + 1))
            del entry["seal"]
            out.append(entry)
        return out

    def finished(self):
        steps = self.steps()
        return bool(steps) and steps[-1]["step"] in FINAL


def latest(service):
    """The newest journal of a service, or None."""
    everything = all_of(service)
    return everything[-1] if everything else None


def all_of(service):
    """Journals of a service, oldest first."""
    try:
        names = sorted(name for name in os.listdir(paths.transactions(service)) if name.endswith(".jsonl"))
    except FileNotFoundError:
        return []
    return [Journal(os.path.join(paths.transactions(service), name)) for name in names]
