"""From the events of a run to its result."""

from __future__ import annotations

from typing import Any

from servewright.driver.errors import host_error, run_error
from servewright.driver.playbook import Event
from servewright.driver.results import HostResult, RunResult

_HOST_EVENTS = {"runner_on_ok", "runner_on_failed", "runner_on_unreachable"}


class Collector:
    """Takes the events of one run in their order. `limit` is the pattern that was given for its hosts.

    Without a command its name is taken from the first answer of a host.
    """

    def __init__(self, command: str = "", limit: str | None = None):
        self.hosts: dict[str, HostResult] = {}
        self._command = command
        self._limit = limit
        self._order: dict[str, None] = {}
        self._output: list[str] = []

    def feed(self, event: Event) -> None:
        data = event.get("event_data") or {}
        if event.get("event") == "runner_on_start":
            self._order.setdefault(str(data.get("host")))
        elif event.get("event") in _HOST_EVENTS and data.get("host"):
            result = data.get("res") or {}
            self.hosts[str(data["host"])] = _host_result(event, result)
            if not self._command and isinstance(result.get("servewright"), dict):
                self._command = str(result["servewright"].get("command"))
        elif event.get("event") in ("verbose", "error"):  # what is printed outside of tasks
            self._output.append(str(event.get("stdout", "")))

    def result(self, rc: int, failure: str = "", interrupted: int = 0) -> RunResult:
        """The result, with the exit status of ansible-playbook, or why it could not be run."""
        error = failure
        if not error and not interrupted and not (self.hosts and rc in _HOST_STATUS):
            error = run_error("\n".join(self._output), self._limit, rc)
        # Hosts start in the order of the inventory, and end in any.
        hosts = {host: self.hosts[host] for host in [*self._order, *self.hosts] if host in self.hosts}
        return RunResult(self._command or "run", hosts, error=error, interrupted=interrupted)


_HOST_STATUS = (0, 2, 4, 6, 8)
"""Exit statuses of ansible-playbook that speak of hosts and not of the run: 2, 4 and 8 are flags for failed,
unreachable and stopped early."""


def _host_result(event: Event, result: dict[str, Any]) -> HostResult:
    answer = result.get("servewright")
    if event["event"] == "runner_on_unreachable" or not isinstance(answer, dict):
        unreachable = event["event"] == "runner_on_unreachable"
        return HostResult(unreachable=unreachable, error=host_error(result, str(event.get("stdout", ""))))
    found = HostResult(
        services=list(answer.get("services") or []),
        problems=list(answer.get("problems") or []),
        changed=bool(result.get("changed")),
        note=str(answer.get("note", "")),
    )
    if result.get("failed") or event["event"] == "runner_on_failed":
        explained = found.problems or any(service.get("verdict") not in _GOOD for service in found.services)
        found.error = "" if explained else host_error(result)
    return found


_GOOD = {"committed", "unchanged", "changes", "running", "ok", "mended"}
