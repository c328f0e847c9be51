"""What the gates of one release share, and how a gate answers: (verdict, message, evidence)."""

from __future__ import annotations

import time

from .. import completions, load, proc, ready, systemd
from ..errors import HostError
from ..paths import unit_name

PASSED, FAILED, SKIPPED, BUSY = "passed", "failed", "skipped", "busy"


class Run:
    """What the gates of one release share: the release, its number, its unit's state when it became ready.

    `returning` tells that the release was committed before and is gone back to, `light` that requests are made once
    and not waited for. What one gate learns for a later one: `context` (tokens, None: not known) and `reference`
    (answers by prompt).
    """

    def __init__(self, release, number, returning=False, light=False):
        self.release = release
        self.number = number
        self.returning = returning
        self.light = light
        self.unit = unit_name(release["service"])
        self.state = systemd.show(self.unit)
        self.since = time.monotonic()
        self.http = ready.client(release, number)
        self.context = release["model"]["context_length"]
        self.reference = {}

    @property
    def verify(self):
        return self.release["verify"]

    def complete(self, prompt, max_tokens, **options):
        """The whole answer to a prompt, from a server that may be busy. Raises HttpError, HostError."""
        return self.patiently(completions.complete, prompt, max_tokens, **options)

    def patiently(self, kind, prompt, max_tokens, **options):
        """The same, by one of the functions of completions."""
        timeout = self.verify["request_timeout"]

        def call():
            return kind(self.release, self.http, prompt, max_tokens, timeout, **options)

        if self.light:
            return load.once(self.release, self.http, call)
        return load.patiently(self.release, self.http, call, self.same_process)

    def get(self, paths):
        """JSON of the first of some paths that the server has, from a server that may be busy."""
        return load.patiently(self.release, self.http, lambda: self.http.first(paths), self.same_process)

    def restarted(self):
        """How the process that became ready has ended meanwhile, in words, or None while it runs."""
        state = systemd.show(self.unit)
        if state["InvocationID"] != self.state["InvocationID"] or state["NRestarts"] != self.state["NRestarts"]:
            return f"the unit restarted: {ready.ending(state)}"
        if not systemd.active(state):
            return "the unit is {}: {}".format(state["ActiveState"], ready.ending(state))
        return None

    def remarks(self):
        """What may explain a failure and no gate looks at: that systemd had to restart the unit, processes that do
        nothing."""
        count, since = self.state["NRestarts"], self.state["ActiveEnterTimestamp"]
        again = [f"systemd restarted the unit ({count}), last on {since}"] if count else []
        return again + list(filter(None, map(proc.stuck, systemd.pids(self.state["ControlGroup"]))))

    def same_process(self):
        """Raise HostError when the process that became ready has ended."""
        ended = self.restarted()
        if ended:
            raise HostError(ended)
