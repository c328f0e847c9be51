"""How soon the command line answers, beside the start of Ansible and of Python itself."""

from __future__ import annotations

import sys
from functools import partial

from bench import record
from bench.options import options
from bench.table import table
from bench.timing import Argv, Timed, in_turn, ratio, spread, timed
from tests.hosts.commands import BIN

COMMANDS: dict[str, Argv] = {
    "servewright --help": [BIN / "servewright", "--help"],
    "servewright validate": [BIN / "servewright", "validate", "-i", "inventory"],
    "ansible-playbook --version": [BIN / "ansible-playbook", "--version"],
    "python -c pass": [BIN / "python", "-c", "pass"],
}
OURS = ("servewright --help", "servewright validate")
PEER = "ansible-playbook --version"
TARGET_SECONDS = 0.5


def main() -> int:
    """Run the bench; 1 when a target was missed."""
    arguments = options("command_line", __doc__ or "", repeats=15).parse_args()
    load = record.load()
    results: dict[str, list[Timed]] = in_turn(
        {name: partial(timed, argv, record.ROOT) for name, argv in COMMANDS.items()}, arguments.repeats
    )
    wall = {name: [run.wall for run in runs] for name, runs in results.items()}
    cpu = {name: [run.cpu for run in runs] for name, runs in results.items()}
    print(
        table(
            ("command", "seconds", "processor seconds", "ratio to Ansible's start"),
            [
                (name, str(spread(wall[name])), str(spread(cpu[name])), str(ratio(wall[name], wall[PEER])))
                for name in wall
            ],
        )
    )
    slowest = max(spread(wall[name]).median for name in OURS)
    print(f"\ntarget: {TARGET_SECONDS} s; the slower of ours takes {slowest:.2f} s; load before: {load}")
    record.write(
        arguments.record,
        bench="command_line",
        load_before=load,
        target_seconds=TARGET_SECONDS,
        slowest_median=slowest,
        wall=wall,
        cpu=cpu,
    )
    return int(slowest > TARGET_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
