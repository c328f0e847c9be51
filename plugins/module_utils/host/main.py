"""Command line of host.pyz, used by the units. Each command imports only what it needs: some run before every start."""

from __future__ import annotations

import argparse
import sys

from .errors import HostError


def before_start(arguments):
    """Make way for a start: end leftovers, clean shared memory, then port and GPUs; whoever holds one is named.

    One command for all of it, because an interpreter's start counts: the service is down meanwhile.
    """
    from . import gpus, ports, proc

    after_stop(arguments)
    found = ports.holders(arguments.address, arguments.port)
    if found:
        who = ", ".join(proc.describe(pid) if pid else "a process that cannot be seen" for pid in found)
        raise HostError(f"port {arguments.port} is held by {who}")
    if arguments.gpus:
        gpus.wait_free(
            [int(part) for part in arguments.gpus.split(",")],
            arguments.timeout,
            note=lambda text: _say("waiting: " + text),
        )
    return 0


def after_stop(arguments):
    from . import leftovers, proc, shm

    survivors = leftovers.end(arguments.service, arguments.user, report=_say)
    try:
        shm.clean(arguments.service, arguments.user, report=_say)
    except HostError as error:
        _say(f"no shared memory was removed: {error}")  # a reason to look into, none not to serve
    if survivors:
        who = "; ".join(map(proc.describe, survivors))
        raise HostError(f"processes outlived SIGKILL: {who}: the host needs a reboot")
    return 0


def _say(text):
    print(text, flush=True)


def transact(arguments):
    from . import transaction

    transaction.transact(arguments.service, arguments.transaction)
    return 0


def measure(arguments):
    from .measure import run

    run.carry_out(arguments.service, arguments.transaction)
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


def drift(arguments):
    import time

    from . import api, paths
    from .drift import metrics

    begin = time.monotonic()
    results = api.drift(paths.services())
    for line in metrics.lines(results):
        print(line, flush=True)
    if arguments.metrics_folder:
        metrics.write(arguments.metrics_folder, results, time.time(), time.monotonic() - begin)
    return 0


def watch(arguments):
    from .watch import run

    for line in run.run(arguments.service):
        print(line, flush=True)
    return 0


def parser():
    top = argparse.ArgumentParser(prog="host.pyz", description="servewright's library on this host")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name, function, **options):
        sub = commands.add_parser(name)
        sub.set_defaults(function=function)
        for option, kind in options.items():
            sub.add_argument("--" + option, type=kind, required=True)
        return sub

    # The units of old releases call these two, too: they stay as they are.
    start = command("before-start", before_start, service=str, user=str, address=str, port=int)
    start.add_argument("--gpus", default="")
    start.add_argument("--timeout", type=float, default=0)
    command("after-stop", after_stop, service=str, user=str)
    command("transact", transact, service=str, transaction=int)
    command("measure", measure, service=str, transaction=int)
    command("recover", recover, service=str)
    command("recover-all", recover_all)
    command("watch", watch, service=str)
    command("drift", drift).add_argument("--metrics-folder", default="")
    return top


def main():
    """Run a command; an expected error is one line, and exit code 1."""
    arguments = parser().parse_args()
    try:
        sys.exit(arguments.function(arguments))
    except HostError as error:
        print(f"servewright: {error}", file=sys.stderr)
        sys.exit(1)
