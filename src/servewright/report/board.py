"""Where every host and service is while a run goes on."""

from __future__ import annotations

from dataclasses import dataclass

from servewright.driver.playbook import Event
from servewright.driver.progress import Progress
from servewright.report.service import VERDICTS
from servewright.report.style import clean

WAITING = "working"


@dataclass
class Row:
    """One host and service ("" before the host named one). `since` is on the clock of the board."""

    host: str
    service: str
    phase: str
    since: float
    line: str = ""
    style: str = ""
    back: bool = False
    """Whether a rollback is under way, whose phases have the same names."""
    seconds: float | None = None
    """Set when it is over."""

    def elapsed(self, now: float) -> float:
        return self.seconds if self.seconds is not None else max(0.0, now - self.since)

    @property
    def name(self) -> str:
        return f"{self.host} {self.service}".rstrip()


class Board:
    """Takes events and progress. Every call gets the time in seconds, on any one clock."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    @property
    def unfinished(self) -> list[Row]:
        return [row for row in self.rows if row.seconds is None]

    def feed(self, item: Event | Progress, now: float) -> list[Row]:
        """Take an item; gives the rows whose phase it changed."""
        if isinstance(item, Progress):
            return self._progress(item, now)
        host = str((item.get("event_data") or {}).get("host") or "")
        if item.get("event") == "runner_on_start" and host:
            self._rows.setdefault((host, ""), Row(host, "", WAITING, now))
        elif item.get("event") in ("runner_on_ok", "runner_on_failed", "runner_on_unreachable"):
            return self._finish(host, item, now)
        return []

    def _progress(self, item: Progress, now: float) -> list[Row]:
        self._rows.pop((item.host, ""), None)
        row = self._rows.setdefault((item.host, item.service), Row(item.host, item.service, "", now))
        row.back = row.back or item.step == "rolling_back"
        phase = item.step.replace("_", " ")
        phase = f"rollback: {phase}" if row.back and item.step != "rolling_back" else phase
        changed = row.phase != phase
        row.phase, row.line, row.since = phase, clean(item.line), now - item.elapsed
        return [row] if changed else []

    def _finish(self, host: str, event: Event, now: float) -> list[Row]:
        result = (event.get("event_data") or {}).get("res") or {}
        services = (result.get("servewright") or {}).get("services") or []
        verdicts = {str(service.get("service")): str(service.get("verdict")) for service in services}
        changed = []
        for (_, name), row in [*self._rows.items()]:
            if row.host == host and row.seconds is None:
                word, style = VERDICTS.get(verdicts.get(name, ""), ("done", ""))
                if event["event"] == "runner_on_unreachable":
                    word, style = "unreachable", "bad"
                row.phase, row.style, row.seconds, row.line = word, style, row.elapsed(now), ""
                changed += [row] if row.service else []
        return changed
