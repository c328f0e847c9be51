"""The systemd timer that looks for drift."""

from __future__ import annotations

from . import difference, timers
from .commands import run
from .errors import HostError

# A look that was missed while the host was down is due at once when it boots, before the services are there.
_BOOTED = "After=multi-user.target\n"


def units(host):
    """Units of the timer that a host declares, by name."""
    timer, folder = host["drift_timer"], host["metrics_folder"]
    return timers.units(
        "servewright-drift",
        "Look for drift of servewright services",
        "drift" + (f" --metrics-folder {folder}" if folder else ""),
        timer and f"OnCalendar={timer['schedule']}\nPersistent=true",
        _BOOTED,
    )


def changes(host):
    """How the timer on disk differs from the declared one, as changes. Raises HostError on a bad schedule."""
    timer, differing = host["drift_timer"], timers.differing(units(host))
    if not differing:
        return []
    if timer is not None:
        done = run(["systemd-analyze", "calendar", timer["schedule"]], check=False)
        if done.returncode != 0:
            raise HostError(
                "servewright_host.drift_timer.schedule: systemd takes {!r} for no time: {}".format(
                    timer["schedule"], (done.stderr or done.stdout).strip()
                )
            )
    old = None if all(text.endswith("(missing)") for text in differing) else "; ".join(differing)
    new = timer and timer["schedule"]
    return [{"field": "host drift_timer", "old": old, "new": new, "consequence": difference.NONE}]


def apply(host):
    """Bring the timer to what is declared."""
    timers.apply(units(host))
