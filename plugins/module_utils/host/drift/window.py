"""Maintenance windows: "Sun 03:00-05:00", on the host's clock."""

from __future__ import annotations

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def is_open(windows, now):
    """True when a time lies in one of the windows. One that ends before it begins ends on the next day."""
    minute = now.weekday() * 1440 + now.hour * 60 + now.minute
    for text in windows:
        day, _space, span = text.partition(" ")
        begin, end = (int(part[:2]) * 60 + int(part[3:]) for part in span.split("-"))
        length = (end - begin) % 1440 or 1440
        for number in range(7) if day == "daily" else (_DAYS.index(day),):
            if (minute - number * 1440 - begin) % (7 * 1440) < length:
                return True
    return False
