"""Where things are on a host."""

from __future__ import annotations

import contextlib
import os

PYTHON = "/usr/bin/python3"
HOST_PYZ = "/usr/local/lib/servewright/host.pyz"
ETC = "/etc/servewright"
VAR = "/var/lib/servewright"
RUN = "/run/servewright"
PREFLIGHT = "/var/cache/servewright/.preflight"  # answers that engines' parsers gave
UNITS = "/etc/systemd/system"
RESERVES = (ETC + "/.reserve", VAR + "/.reserve")
RECOVER_UNIT = "servewright-recover.service"
SERVICE_VARIABLE = "SERVEWRIGHT_SERVICE"  # in the environment of each engine: its processes are known by it


def installed():
    """Digests of what servewright has put on the host for all services."""
    return os.path.join(VAR, ".installed.json")


def unit_name(service):
    return service + ".service"


def unit_file(service):
    return os.path.join(UNITS, unit_name(service))


def releases(service):
    return os.path.join(ETC, service, "releases")


def state(service):
    return os.path.join(VAR, service)


def committed(service):
    return os.path.join(state(service), "committed.json")


def transactions(service):
    return os.path.join(state(service), "transactions")


_TRANSACTION = "servewright-transaction-"


def transaction_unit(service):
    return _TRANSACTION + service + ".service"


def service_of(unit):
    """The service that a transaction's unit belongs to."""
    return unit[len(_TRANSACTION) : -len(".service")]


def lock(service):
    return os.path.join(RUN, service + ".lock")


def watch(service):
    """What the watch knows of a service."""
    return os.path.join(RUN, service + ".watch")


def nccl_log(service):
    """The file that turns NCCL's log on for the start a transaction makes; the unit reads it when it is there."""
    return os.path.join(RUN, service + ".nccl")


def services():
    """Names of all services that servewright knows on this host."""
    names = set()
    for folder in (ETC, VAR):
        with contextlib.suppress(FileNotFoundError):
            names.update(name for name in os.listdir(folder) if os.path.isdir(os.path.join(folder, name)))
    return sorted(names)
