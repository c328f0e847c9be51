"""Test hosts at a terminal, to look at what a test does."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable

from tests.testbed import cgroups, machine, network, process, runs
from tests.testbed.errors import TestbedError
from tests.testbed.image import current_image
from tests.testbed.testbed import Testbed

LABEL = "up"


def up(names: list[str]) -> None:
    """Boot hosts and keep them until Ctrl-C."""
    with Testbed(LABEL) as testbed:
        for name in names:
            host = testbed.boot(name)
            print(f"{host.name}\t{host.ip}\t{shlex.join(host.ssh_command())}", flush=True)
        print("Ctrl-C ends them.", file=sys.stderr)
        signal.pause()


def down() -> None:
    """End the hosts that `up` keeps, and remove what dead runs left; test runs that are alive go on."""
    cache = machine.cache_folder()
    for run in runs.living(cache):
        if run.name.startswith(f"{LABEL}-"):
            os.kill(run.owner, signal.SIGTERM)
            while run.lock.exists():
                time.sleep(0.05)
            print(f"{run.name} ended")
    runs.sweep(cache)


def ps() -> None:
    """List the hosts of all runs that are alive."""
    for run in runs.living(machine.cache_folder()):
        for host in run.hosts():
            state = "off" if process.container_of(host.root) is None else "on"
            print(f"{run.name}\t{host.name}\t{host.ip}\t{state}")


def enter(name: str, command: list[str]) -> None:
    """Become a command in a host, named by NAME or RUN/NAME."""
    found = [
        (f"{run.name}/{host.name}", host.root)
        for run in runs.living(machine.cache_folder())
        for host in run.hosts()
        if name in (host.name, f"{run.name}/{host.name}")
    ]
    if len(found) != 1:
        names = ", ".join(full for full, _ in found)
        raise TestbedError(f"several hosts are called {name}: say {names}" if found else f"there is no host {name}")
    container = process.container_of(found[0][1])
    init = process.init_of(container) if container is not None else None
    if init is None:
        raise TestbedError(f"{name} is off")
    argv = process.inside(init, ["TERM=" + os.environ.get("TERM", "dumb"), *command])
    os.execvp(argv[0], argv)


def image() -> None:
    """Build the image if it is not there, and say where it is."""
    with Testbed("image") as testbed:
        print(testbed.ensure_image().rootfs)


def doctor() -> None:
    """Say what this machine has and lacks for test hosts, and change nothing.

    Raises TestbedError when they cannot be had.
    """
    checks: dict[str, Callable[[], str]] = {
        "privileges": _check_privileges,
        "packages": lambda: (
            "to be installed: " + " ".join(lacking) if (lacking := machine.missing_packages()) else "all"
        ),
        "cache": lambda: str(machine.cache_folder()),
        "image": lambda: "built" if current_image(machine.cache_folder()).folder.exists() else "not built yet",
        "network": _check_network,
        "limits": _check_limits,
    }
    failed = False
    for name, check in checks.items():
        try:
            print(f"{name + ':':12}{check()}")
        except TestbedError as error:
            failed = True
            print(f"{name + ':':12}error: {error}")
    if failed:
        raise TestbedError("this machine cannot carry test hosts yet")


def _check_privileges() -> str:
    machine.check_privileges()
    return "root, may mount and make networks"


def _check_network() -> str:
    subnet = network.claim(network.pool())
    network.open_network(subnet, "swtb-doctor").close()
    return f"{subnet} is free"


def _check_limits() -> str:
    if cgroups.machine_runs_systemd():
        return "delegated by the machine's systemd"
    controllers = cgroups.controllers_for_hosts()
    if "memory" in controllers:
        return f"enforced: {' '.join(sorted(controllers))}"
    return "NOT enforced (MemoryMax= and the like are ignored): no memory controller can be handed down here"


def main() -> int:
    """Run the command line and return the exit status: 1 for an error, which is one line."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.testbed", description="Real systemd hosts for tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("up", help="boot hosts and keep them until Ctrl-C")
    add.add_argument("names", metavar="NAME", nargs="+")
    add = commands.add_parser("shell", help="open a shell in a host of any run")
    add.add_argument("name", metavar="NAME")
    add = commands.add_parser("exec", help="run a command in a host of any run")
    add.add_argument("name", metavar="NAME")
    add.add_argument("argv", metavar="COMMAND", nargs=argparse.REMAINDER)
    for name, text in (
        ("down", "end the hosts of `up` and remove what dead runs left"),
        ("ps", "list all hosts"),
        ("image", "build the image and say where it is"),
        ("doctor", "say what this machine has and lacks"),
    ):
        commands.add_parser(name, help=text)
    arguments = parser.parse_args()
    try:
        if arguments.command != "doctor":
            machine.check_privileges()
        match arguments.command:
            case "up":
                up(arguments.names)
            case "shell":
                enter(arguments.name, ["/bin/bash", "--login"])
            case "exec":
                enter(arguments.name, arguments.argv or parser.error("exec needs a command"))
            case "down":
                down()
            case "ps":
                ps()
            case "image":
                image()
            case "doctor":
                doctor()
    except TestbedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
