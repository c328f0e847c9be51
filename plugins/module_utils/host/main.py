"""Command line of host.pyz, used by the units. Each command imports only what it needs: some run before every start."""

from __future__ import annotations

import argparse
import sys


def check_port(arguments):
    from . import ports, proc

    found = ports.holders(arguments.address, arguments.port)
    for pid in found:
        print(
            "port %d is held by %s" % (arguments.port, proc.describe(pid) if pid else "a process that cannot be seen")
        )
    return 1 if found else 0


def clean_shm(arguments):
    from . import shm

    shm.clean(arguments.user)
    return 0


def wait_gpus(arguments):
    from . import gpus

    gpus.wait_free(
        [int(part) for part in arguments.gpus.split(",")],
        arguments.timeout,
        note=lambda text: print("waiting: " + text, flush=True),
    )
    return 0


def transact(arguments):
    from . import transaction

    transaction.transact(arguments.service, arguments.transaction)
    return 0


def recover(arguments):
    from . import transaction

    transaction.recover(arguments.service)
    return 0


def recover_all(arguments):
    from . import paths, systemd, transaction

    interrupted = [service for service in paths.services() if transaction.recover_at_boot(service)]
    if interrupted:
        systemd.daemon_reload()
    for service in interrupted:
        print(
            f"{service}: finishing an interrupted transaction by going back to the committed release",
            flush=True,
        )
        systemd.start_later(f"servewright-recover@{service}.service")
    return 0


def parser():
    top = argparse.ArgumentParser(prog="host.pyz", description="servewright's library on this host")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name, function, **options):
        sub = commands.add_parser(name)
        sub.set_defaults(function=function)
        for option, kind in options.items():
            sub.add_argument("--" + option, type=kind, required=True)

    command("check-port", check_port, address=str, port=int)
    command("clean-shm", clean_shm, service=str, user=str)
    command("wait-gpus", wait_gpus, gpus=str, timeout=float)
    command("transact", transact, service=str, transaction=int)
    command("recover", recover, service=str)
    command("recover-all", recover_all)
    return top


def main():
    """Run a command; an expected error is one line, and exit code 1."""
    from .errors import HostError

    arguments = parser().parse_args()
    try:
        sys.exit(arguments.function(arguments))
    except HostError as error:
        print(f"servewright: {error}", file=sys.stderr)
        sys.exit(1)
