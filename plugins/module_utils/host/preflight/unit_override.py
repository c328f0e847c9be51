"""Drop-ins: what others merge into the unit behind its release's back."""

from __future__ import annotations

import math
import re

from .. import drop_ins, files, paths

_YES = ("1", "yes", "y", "true", "t", "on")  # parse_boolean of systemd, without regard to case
# Settings of a drop-in that no engine survives: name, values, what they do, whether only on GPUs. systemd.exec(5),
# systemd.resource-control(5); NixOS/nixpkgs#331069.
FORBIDDEN = (
    ("PrivateDevices", _YES, "hides the GPUs", True),
    ("DevicePolicy", ("closed", "strict"), "hides the GPUs", True),
    ("ProtectClock", _YES, "turns on a list of devices without the GPUs", True),
    ("MemoryDenyWriteExecute", _YES, "forbids the code that kernels are compiled to", False),
    ("PrivateNetwork", _YES, "keeps every client away", False),
)
# Names that stand for others: load-fragment-gperf.gperf.in and systemd.service(5).
_ALIASES = {
    "Unit.StartLimitInterval": ("Unit.StartLimitIntervalSec",),
    "Service.StartLimitInterval": ("Unit.StartLimitIntervalSec",),
    "Service.StartLimitBurst": ("Unit.StartLimitBurst",),
    "Service.TimeoutSec": ("Service.TimeoutStartSec", "Service.TimeoutStopSec"),
}
# systemd.time(7), PARSING TIME SPANS; a month is a twelfth of a year.
_SECONDS = {
    unit: seconds
    for units, seconds in (
        (("usec", "us", "µs", "μs"), 1e-6),  # the micro sign and the Greek letter
        (("msec", "ms"), 1e-3),
        (("", "seconds", "second", "sec", "s"), 1),
        (("minutes", "minute", "min", "m"), 60),
        (("hours", "hour", "hr", "h"), 3600),
        (("days", "day", "d"), 86400),
        (("weeks", "week", "w"), 7 * 86400),
        (("months", "month", "M"), 365.25 * 86400 / 12),
        (("years", "year", "y"), 365.25 * 86400),
    )
    for unit in units
}
_SPAN = re.compile(r"\s*([\d.]+)\s*([^\s\d.]*)")


def seconds(text):
    """A time span of systemd in seconds. Raises ValueError for what systemd takes for none."""
    if text == "infinity":
        return math.inf
    spans = _SPAN.findall(text)
    if not spans or _SPAN.sub("", text).strip() or any(unit not in _SECONDS for _number, unit in spans):
        raise ValueError(f"{text!r} is no time span")
    return sum(float(number) * _SECONDS[unit] for number, unit in spans)


# How systemd reads the settings that are looked at as numbers.
_READ = {
    "Unit.StartLimitIntervalSec": seconds,
    "Unit.StartLimitBurst": int,
    "Service.RestartSec": seconds,
    "Service.TimeoutStartSec": seconds,
    "Service.TimeoutStopSec": seconds,
}


def merged(service):
    """Paths of the drop-ins of a service's unit, in systemd's order; also of those that it has not read yet."""
    return drop_ins.merged(paths.unit_name(service))


def settings(path):
    """Settings of a drop-in by "Section.Name"."""
    return dict(_settings(files.text(path)))


def effective(release):
    """Settings of the unit with its drop-ins on top: (name to value, name to the drop-in it comes from)."""
    values, origin = {}, {}
    texts = [(None, release["unit"]), *((path, files.text(path)) for path in merged(release["service"]))]
    for path, text in texts:
        for name, value in _settings(text):
            values[name] = f"{values[name]} {value}" if value and values.get(name) and _is_list(name) else value
            if path:
                origin[name] = path
    return values, origin


def repair(origin, *names):
    """What to do about settings of the effective unit that are wrong: correct the drop-ins they come from."""
    whose = ", ".join(sorted({origin[name] for name in names if name in origin}))
    return f"correct {whose}" if whose else "this is a defect of the unit template"


def _settings(text):
    """Settings of a unit file in their order, by the names they stand for, but for those that systemd does not take."""
    for _number, section, alias, value in drop_ins.settings(text):
        for name in _ALIASES.get(f"{section}.{alias}", (f"{section}.{alias}",)):
            if _is_list(name) or _taken(name, value):
                yield name, value


def _taken(name, value):
    """False for a value that systemd ignores with a line in its log, so that the one before it holds."""
    try:
        _READ.get(name, str)(value)
    except ValueError:
        return False
    return bool(value)


def _is_list(name):
    return name.partition(".")[2] in drop_ins.LISTS
