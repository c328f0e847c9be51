"""The systemd timer that looks for drift."""

from __future__ import annotations

from . import difference, files, library, paths, systemd
from .commands import run
from .errors import HostError

SERVICE, TIMER = "servewright-drift.service", "servewright-drift.timer"


def units(timer):
    """Text of the units of a declared timer ({"schedule", "metrics_folder"}), by name; None stands for no timer."""
    if timer is None:
        return {SERVICE: None, TIMER: None}
    metrics = " --metrics-folder " + timer["metrics_folder"] if timer["metrics_folder"] else ""
    service = f"""# Written by servewright.
[Unit]
Description=Look for drift of servewright services

[Service]
Type=oneshot
ExecStart={paths.PYTHON} -I {paths.HOST_PYZ} drift{metrics}
SyslogIdentifier=servewright
# Whatever serves goes first.
Nice=19
IOSchedulingClass=idle
"""
    return {
        SERVICE: service,
        TIMER: f"""# Written by servewright.
[Unit]
Description=Look for drift of servewright services

[Timer]
OnCalendar={timer["schedule"]}
Persistent=true

[Install]
WantedBy=timers.target
""",
    }


def changes(host):
    """How the timer on disk differs from the declared one, as changes. Raises HostError on a bad schedule."""
    timer = host["drift_timer"]
    differing = {name for name, text in units(timer).items() if _on_disk(name) != text}
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
    old = "other" if _on_disk(TIMER) else None
    new = timer and timer["schedule"]
    return [{"field": "host drift_timer", "old": old, "new": new, "consequence": difference.NONE}]


def apply(host):
    """Bring the timer to what is declared."""
    timer = host["drift_timer"]
    if timer is None:
        run(["systemctl", "disable", "--now", "--quiet", TIMER], check=False)
    else:
        library.install()
    for name, text in units(timer).items():
        if text is None:
            files.remove(f"{paths.UNITS}/{name}")
        else:
            files.write(f"{paths.UNITS}/{name}", text)
    systemd.daemon_reload()
    if timer is not None:
        run(["systemctl", "enable", "--quiet", TIMER], timeout=120)
        run(["systemctl", "restart", TIMER])


def _on_disk(name):
    data = files.read_bytes(f"{paths.UNITS}/{name}")
    return None if data is None else data.decode("utf-8", "replace")
