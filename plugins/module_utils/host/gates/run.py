"""What the gates of one release share, and how a gate answers: (verdict, message, evidence)."""

from __future__ import annotations

import time

from .. import ready, systemd
from ..paths import unit_name

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Run:
    """What the gates of one release share: the release, its number, its unit's state when it became ready.

    `returning` tells that the release was committed before and is gone back to.
    """

    def __init__(self, release, number, returning=False):
        self.release = release
        self.number = number
        self.returning = returning
        self.unit = unit_name(release["service"])
        self.state = systemd.show(self.unit)
        self.since = time.monotonic()
        self.http = ready.client(release, number)
