"""Timers of systemd that run host.pyz: their units, how what is there differs from them, and bringing them to it."""

from __future__ import annotations

from . import files, library, paths, systemd
from .commands import run


def units(name, description, command, when, order=""):
    """Text of the two units of a timer, by file name.

    `command` are words for host.pyz, `when` is the content of [Timer]; None: there is to be no such timer. `order` are
    lines for [Unit] of the service, each with its end.
    """
    if when is None:
        return {f"{name}.service": None, f"{name}.timer": None}
    return {
        f"{name}.service": f"""# Written by servewright.
[Unit]
Description={description}
{order}# Runs by hand, one after the other, are no loop.
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart={paths.PYTHON} -I {paths.HOST_PYZ} {command}
SyslogIdentifier=servewright
# Whatever serves goes first: at once, where a nice process would keep its turn to the end.
CPUSchedulingPolicy=idle
IOSchedulingClass=idle
""",
        f"{name}.timer": f"""# Written by servewright.
[Unit]
Description={description}

[Timer]
{when}

[Install]
WantedBy=timers.target
""",
    }


def differing(wanted):
    """How the units on this host differ from the wanted ones, as text a unit; empty when they are right."""
    found = []
    for name, text in wanted.items():
        there = on_disk(name)
        if there != text:
            found.append("{} ({})".format(name, "missing" if there is None else "edited" if text else "not declared"))
    timer, text = _timer(wanted)
    if text is not None and not found:
        state = systemd.show(timer)
        if state["UnitFileState"] != "enabled":
            found.append(f"{timer} (not enabled)")
        elif not systemd.active(state):
            found.append(f"{timer} (stopped)")
    return found


def apply(wanted):
    """Bring the units to what is wanted, and start the timer anew."""
    timer, text = _timer(wanted)
    if text is None:
        run(["systemctl", "disable", "--now", "--quiet", timer], check=False)
    else:
        library.install()
    for name, content in wanted.items():
        if content is None:
            files.remove(f"{paths.UNITS}/{name}")
        else:
            files.write(f"{paths.UNITS}/{name}", content)
    systemd.daemon_reload()
    if text is not None:
        run(["systemctl", "enable", "--quiet", timer], timeout=120)
        run(["systemctl", "restart", timer])


def _timer(wanted):
    return next(item for item in wanted.items() if item[0].endswith(".timer"))


def on_disk(name):
    """Text of an installed unit, or None."""
    data = files.read_bytes(f"{paths.UNITS}/{name}")
    return None if data is None else data.decode("utf-8", "replace")
