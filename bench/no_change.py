"""Seconds and remote round trips of a deploy that changes nothing, beside stock modules and pyinfra."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import pyinfra, record
from bench.fleet import Fleet
from bench.options import options
from bench.table import table
from bench.timing import Argv, BenchError, Timed, in_turn, ratio, spread, timed
from tests.hosts.commands import BIN
from tests.testbed import Testbed, TestbedError

OURS = "servewright.llm.deploy"
COMMAND_LINE = "servewright deploy"
STOCK = "stock modules"
PYINFRA = "pyinfra"
TARGET_RATIO = 0.35


@dataclass(frozen=True)
class Deploy:
    """One timed deploy: the process, and the SSH sessions a host."""

    run: Timed
    sessions: float


def main() -> int:
    """Run the bench; 1 when the target was missed."""
    parser = options("no_change", __doc__ or "", repeats=5)
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 4, 16], help="numbers of hosts, ascending")
    arguments = parser.parse_args()
    results = []
    try:
        program = pyinfra.program()
        with Testbed("bench") as testbed, tempfile.TemporaryDirectory(prefix="servewright-bench-") as name:
            fleet = Fleet(testbed, Path(name))
            for size in arguments.hosts:
                fleet.grow(size)
                peers = contestants(fleet, program, Path(name))
                converge(fleet)
                results.append(measure(fleet, peers, arguments.repeats))
    except (BenchError, TestbedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    worst = max(result["ratio"][name]["median"] for result in results for name in (OURS, COMMAND_LINE))
    print(f"\ntarget: {TARGET_RATIO} of the time of stock modules; the worst of our medians is {worst:.2f}")
    record.write(
        arguments.record,
        bench="no_change",
        target_ratio=TARGET_RATIO,
        worst_ratio=worst,
        pyinfra=pyinfra.VERSION,
        results=results,
    )
    return int(worst > TARGET_RATIO)


def contestants(fleet: Fleet, program: Path, folder: Path) -> dict[str, Argv]:
    """The commands that are compared. All run where the ansible.cfg of the repository is: pipelining, five forks."""
    ansible: Argv = [BIN / "ansible-playbook", "-i", fleet.inventory]
    return {
        OURS: [*ansible, OURS],
        COMMAND_LINE: [BIN / "servewright", "deploy", "-i", str(fleet.inventory)],
        STOCK: [*ansible, record.ROOT / "bench/stock.yml"],
        PYINFRA: [program, "-y", pyinfra.inventory(fleet, folder), record.ROOT / "bench/pyinfra_state.py"],
    }


def converge(fleet: Fleet) -> None:
    """Bring all hosts to the declared state, which the peers then have nothing to change about either."""
    timed([BIN / "servewright", "deploy", "-i", str(fleet.inventory)], record.ROOT)
    fleet.collect()


def measure(fleet: Fleet, peers: dict[str, Argv], repeats: int) -> dict[str, Any]:
    """Time the contestants on the fleet in turn, print a table and give the figures."""
    load = record.load()
    results = in_turn({name: partial(deploy, fleet, name, argv) for name, argv in peers.items()}, repeats)
    wall = {name: [done.run.wall for done in runs] for name, runs in results.items()}
    cpu = {name: [done.run.cpu for done in runs] for name, runs in results.items()}
    sessions = {name: spread([done.sessions for done in runs]).median for name, runs in results.items()}
    ratios = {name: ratio(wall[name], wall[STOCK]) for name in wall}
    print(f"\n{len(fleet.hosts)} host(s), load before: {load}\n")
    print(
        table(
            ("deploy that changes nothing", "seconds", "processor seconds", "SSH sessions a host", "ratio to stock"),
            [
                (name, str(spread(wall[name])), str(spread(cpu[name])), f"{sessions[name]:g}", str(ratios[name]))
                for name in wall
            ],
        ),
        flush=True,
    )
    return {
        "hosts": len(fleet.hosts),
        "load_before": load,
        "wall": wall,
        "cpu": cpu,
        "sessions_per_host": sessions,
        "ratio": {name: vars(found) for name, found in ratios.items()},
    }


def deploy(fleet: Fleet, name: str, argv: Argv) -> Deploy:
    """One deploy over new SSH connections. Raises BenchError when it changed anything."""
    fleet.disconnect()
    before = fleet.sessions()
    run = timed(argv, record.ROOT)
    if not UNCHANGED[name](run.output, len(fleet.hosts)):
        raise BenchError(f"{name} did not say that it changed nothing:\n{run.output}")
    return Deploy(run, (fleet.sessions() - before) / len(fleet.hosts))


def ansible_unchanged(output: str, hosts: int) -> bool:
    """Whether the recap of ansible-playbook says of each host that nothing was changed."""
    return len(re.findall(r": ok=\d+ +changed=0 +unreachable=0 +failed=0 ", output)) == hosts


UNCHANGED: dict[str, Callable[[str, int], bool]] = {
    OURS: ansible_unchanged,
    STOCK: ansible_unchanged,
    COMMAND_LINE: lambda output, hosts: len(re.findall(r"\bunchanged\b", output)) >= hosts,
    PYINFRA: lambda output, _hosts: bool(re.search(r"Grand total +\d+ +- +- +\d+", output)),
}


if __name__ == "__main__":
    sys.exit(main())
