"""Seconds without an engine process while a transaction restarts a service, beside a bare `systemctl restart` of it."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import record
from bench.options import options
from bench.table import table
from bench.timing import BenchError, in_turn, spread
from tests.hosts.commands import Library, rendered, service
from tests.simulator.install import install
from tests.testbed import Host, Testbed, TestbedError

SERVICE = "kimi"
TRANSACTION = "transaction"
BARE = "systemctl restart"
TARGET_SECONDS = 0.3

WATCH = """
import os, select, sys, time
process = os.pidfd_open(int(sys.argv[1]))
print("watching", flush=True)
select.select([process], [], [])
print(time.monotonic(), flush=True)
"""
"""Run on the host: prints when a process has exited. The service manager forgets it as soon as the next one starts."""


@dataclass(frozen=True)
class Gap:
    """From the exit of the old process to the execution of the new one, in seconds."""

    cleanup: float
    """To the end of the stop: ExecStopPost."""
    pause: float
    """To the begin of the start: what the transaction does in between."""
    checks: float
    """To the fork of the new process: ExecStartPre."""
    execution: float
    """To its execution: systemd sets its sandbox up."""

    @property
    def total(self) -> float:
        return self.cleanup + self.pause + self.checks + self.execution


def main() -> int:
    """Run the bench; 1 when the target was missed."""
    arguments = options("restart", __doc__ or "", repeats=15).parse_args()
    load = record.load()
    try:
        with Testbed("bench") as testbed:
            host = testbed.boot("gpu1", prepare=lambda root: install(root, engines=[("sglang", "0.5.23")]))
            results = in_turn(contestants(host), arguments.repeats)
    except (BenchError, TestbedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    parts = ("cleanup", "pause", "checks", "execution", "total")
    figures = {name: {part: [getattr(gap, part) for gap in gaps] for part in parts} for name, gaps in results.items()}
    print(
        table(
            ("seconds between two processes", *parts),
            [(name, *(str(spread(by_part[part])) for part in parts)) for name, by_part in figures.items()],
        )
    )
    pairs = zip(figures[TRANSACTION]["total"], figures[BARE]["total"], strict=True)
    added = spread([ours - bare for ours, bare in pairs])
    print(f"\ntarget: at most {TARGET_SECONDS} s more than {BARE}; added: {added} s; load before: {load}")
    record.write(
        arguments.record,
        bench="restart",
        load_before=load,
        target_seconds=TARGET_SECONDS,
        added=vars(added),
        seconds=figures,
    )
    return int(added.median > TARGET_SECONDS)


def contestants(host: Host) -> dict[str, Callable[[], Gap]]:
    """Deploy the service; then two ways to restart it: by a release with another environment, and bare."""
    library = Library(host)
    releases = itertools.cycle([_release("a"), _release("b")])
    _committed(library.deploy(next(releases)))

    def transaction() -> Gap:
        release = next(releases)
        return gap(host, lambda: _committed(library.deploy(release)))

    def bare() -> Gap:
        found = gap(host, lambda: host.run(["systemctl", "restart", SERVICE]))
        _wait_ready(library)  # so that the next stop is one of an engine that serves, as this one was
        return found

    return {TRANSACTION: transaction, BARE: bare}


def gap(host: Host, restart: Callable[[], Any]) -> Gap:
    """Restart the service and give the time in which it had no process."""
    pid = _properties(host)["MainPID"]
    watch = [*host.ssh_command(), shlex.join(["python3", "-c", WATCH, pid])]
    with subprocess.Popen(watch, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        if watcher.stdout.readline() != "watching\n":
            raise BenchError("the process of the service cannot be watched")
        restart()
        gone = float(watcher.stdout.readline())
    state = _properties(host)
    times = [
        int(state[f"{name}TimestampMonotonic"]) / 1e6
        for name in ("InactiveEnter", "InactiveExit", "ExecMainStart", "ActiveEnter")
    ]
    return Gap(*(later - earlier for earlier, later in itertools.pairwise([gone, *times])))


def _properties(host: Host) -> dict[str, str]:
    shown = host.run(["systemctl", "show", SERVICE]).stdout
    return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)


def _release(mark: str) -> dict[str, Any]:
    return rendered(
        service(
            name=SERVICE,
            gpus=[0],
            parallelism={"tensor": 1},
            environment={"BENCH_MARK": mark, "SIM_LOAD_SECONDS": "0.5"},
            # more starts in a short time than any service should have
            limits={"stop_timeout": 10, "gpu_wait": 20, "start_timeout": 60, "restart_delay": 1, "restart_burst": 1000},
        )
    )


def _committed(result: dict[str, Any]) -> None:
    if result["verdict"] != "committed":
        raise BenchError(f"the deploy ended as {result['verdict']}: {result['message']}")


def _wait_ready(library: Library) -> None:
    end = time.monotonic() + 60
    while library.call("verify", SERVICE)["verdict"] != "ok":
        if time.monotonic() > end:
            raise BenchError("the service does not get ready")


if __name__ == "__main__":
    sys.exit(main())
