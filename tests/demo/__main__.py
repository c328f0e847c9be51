"""Deploys a simulated SGLang to a systemd host on this machine, breaks it, and shows it rolled back.

Ends with 0 only if every command ended with the exit code it should.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.demo import inventory, screen
from tests.demo.steps import STEPS, Step
from tests.simulator.install import install
from tests.testbed import Host, Testbed, TestbedError, machine

BIN = Path(sys.executable).parent


def main() -> int:
    """Run the demo and give its exit code."""
    begin = time.monotonic()
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal that cannot draw lines
    try:
        announce()
        with Testbed("demo") as testbed, tempfile.TemporaryDirectory(prefix="servewright-demo-") as name:
            folder, host = Path(name), testbed.boot("gpu1", prepare=install)
            introduce(folder, host)
            for step in STEPS:
                code = run(step, folder)
                if code != step.code:
                    return fail(step, code, host)
    except TestbedError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: stopped, and the host destroyed", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Who read the output has seen enough, as with `| head`; a second try at exit would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    conclude(time.monotonic() - begin)
    return 0


def announce() -> None:
    """Say that packages are missing and will be installed. Raises TestbedError where that is not worth a try."""
    machine.check_privileges()
    packages = machine.missing_packages()
    if packages:
        print(f"Installing {', '.join(packages)} with apt ...", flush=True)


def introduce(folder: Path, host: Host) -> None:
    """Say what there is to work with, and write the inventory."""
    screen.heading("servewright demo")
    screen.prose(
        f"{host.name} has booted on this machine: Debian with systemd, reached over SSH at {host.ip}. It has eight "
        "simulated GPUs and a simulated SGLang, which loads, logs and answers like the real one. "
        "The inventory is that of this repository, Kimi-K2.5 on eight RTX PRO 6000, but for these lines:"
    )
    inventory.prepare(folder, host)
    declare(folder, inventory.SIMULATION)


def declare(folder: Path, *changes: inventory.Changes) -> None:
    """Write the declaration and show what the last change does to it."""
    inventory.declare(folder, *changes[:-1])
    before = (folder / inventory.DECLARED).read_text(encoding="utf-8")
    inventory.declare(folder, *changes)
    screen.difference(before, (folder / inventory.DECLARED).read_text(encoding="utf-8"))


def run(step: Step, folder: Path) -> int:
    """Run the command line of a step in the folder and give its exit code."""
    screen.heading(step.title)
    screen.prose(step.why)
    if step.changes:
        declare(folder, inventory.SIMULATION, step.changes)
    screen.command(step.line)
    process = subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", step.line],
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()  # the terminal has told it, too, and it ends in order
        raise


def fail(step: Step, code: int, host: Host) -> int:
    """Say that a command did not end as it should, and what its host has to say."""
    screen.heading("Not as expected")
    screen.prose(f"{step.title}: exit code {code}, expected {step.code} ({step.outcome}). The host's journal ends:")
    print(f"\n{host.journal(40)}", flush=True)
    return 1


def conclude(seconds: float) -> None:
    """Sum up, and say how to go on."""
    screen.heading("Summary")
    screen.prose(f"All {len(STEPS)} commands ended as they should, in {seconds:.0f} s. The host is destroyed.")
    screen.table([(step.title, f"exit code {step.code}", step.outcome) for step in STEPS])
    screen.heading("Your own host")
    screen.prose(
        "Write its address into inventory/hosts.yml, the model and its GPUs into inventory/group_vars/llm.yml; then:"
    )
    screen.table(
        [
            ("source .venv/bin/activate", "have servewright at hand"),
            ("servewright validate", "check what is declared, without a connection"),
            ("servewright plan", "see what a deploy would change, and what it would restart"),
            ("servewright deploy", "bring the host to what is declared, or back"),
            ("servewright logs kimi", "read the engine's log"),
            ("servewright rollback kimi", "go back to the release before, through the same gates"),
        ]
    )
    print(flush=True)
    screen.prose("And there, should servewright not be at hand:")
    screen.table(
        [
            ("systemctl cat kimi", "the unit, a plain file"),
            ("journalctl -u kimi", "the engine's log"),
            ("ls /etc/servewright/kimi/releases", "all releases, each as it was deployed"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
