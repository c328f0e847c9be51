"""The exit code of a run, the same for every command."""

from __future__ import annotations

from collections.abc import Iterator

from servewright.driver.results import HostResult, RunResult

DONE, ERROR, CHANGES, REFUSED, ROLLED_BACK, ROLLBACK_FAILED, UNREACHABLE, BUSY = range(8)

MEANING = {
    DONE: "done, or nothing to do",
    ERROR: "error, nothing changed",
    CHANGES: "there are changes",
    REFUSED: "refused before anything was touched",
    ROLLED_BACK: "failed, and rolled back to what ran before",
    ROLLBACK_FAILED: "the rollback failed, an operator is needed",
    UNREACHABLE: "a host could not be reached",
    BUSY: "locked by another run",
}

_WORST_FIRST = (ROLLBACK_FAILED, ROLLED_BACK, ERROR, UNREACHABLE, BUSY, REFUSED, CHANGES, DONE)

_OF_VERDICT = {
    "committed": DONE,
    "unchanged": DONE,
    "ok": DONE,
    "running": DONE,
    "changes": CHANGES,
    "drift": CHANGES,
    "mended": DONE,
    "refused": REFUSED,
    "busy": BUSY,
    "pending": BUSY,  # with --detach: another service of the host goes first, so this one was not begun
    "rolled_back": ROLLED_BACK,
    "rollback_failed": ROLLBACK_FAILED,
    "failed": ERROR,
    "error": ERROR,
}


def exit_code(result: RunResult, detailed: bool = False) -> int:
    """The worst code over all hosts. Changes that a plan found count only when `detailed`.

    A run that was interrupted gives 128 and the number of the signal, as shells do: its verdict is not known.
    """
    if result.interrupted:
        return 128 + result.interrupted
    codes = set(_codes(result))
    if not detailed:
        codes.discard(CHANGES)
    return next((code for code in _WORST_FIRST if code in codes), DONE)


def told(result: RunResult, code: int) -> int:
    """The code that a report is headed by: changes that were found are told also when they do not count in `code`."""
    return exit_code(result, detailed=True) if code == DONE else code


def of_verdict(verdict: str) -> int:
    """The exit code of a run that consists of one service with this verdict."""
    return _OF_VERDICT.get(verdict, ERROR)


def _codes(result: RunResult) -> Iterator[int]:
    if result.error:
        yield ERROR
    if result.problems:
        yield REFUSED
    if result.nothing_declared:
        yield REFUSED
    for host in result.hosts.values():
        yield from _host_codes(host)


def _host_codes(host: HostResult) -> Iterator[int]:
    if host.unreachable:
        yield UNREACHABLE
    elif host.error:
        yield ERROR
    if host.problems:
        yield REFUSED
    for service in host.services:
        yield of_verdict(str(service.get("verdict")))
