"""Ports of this service against those of the host and of its other services; addresses and interfaces."""

from __future__ import annotations

import fcntl
import socket
import struct

from .. import arguments, paths, port_plan, ports, proc, releases
from ..errors import DamagedError, HostError
from . import unit_override
from .check import fatal, passed, warning

UNPRIVILEGED = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_SIOCGIFFLAGS = 0x8913
_UP_AND_RUNNING = 0x1 | 0x40  # IFF_UP, IFF_RUNNING


def address(subject):
    """The address is one of this host's, and the service's user may listen on its port."""
    host, number = subject.release["listen"]["host"], subject.release["listen"]["port"]
    try:
        for family, kind, _protocol, _name, where in socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as server:
                server.bind(where)
    except OSError as error:
        return [fatal(f"nobody can listen on {host} here: {error.strerror}", "declare an address of this host")]
    with open(UNPRIVILEGED) as stream:
        first = int(stream.read())
    unit, _origin = unit_override.effective(subject.release)
    if number >= first or "CAP_NET_BIND_SERVICE" in unit.get("Service.AmbientCapabilities", ""):
        return []
    message = "user {} may not listen on port {}: it is below {}".format(subject.release["user"], number, first)
    return [fatal(message, f"declare a listen.port from {first} on, or lower net.ipv4.ip_unprivileged_port_start")]


def port(subject):
    """Every port of the plan is wanted once, and free or held by what will be ended."""
    release, waiting = subject.release, 0
    found = [
        fatal(f"port {number} is the service's own for {' and for '.join(uses)}", "declare another one for one of them")
        for number, uses in port_plan.twice(release).items()
    ]
    for number, what in port_plan.fixed(release).items():
        host = release["listen"]["host"] if what == "HTTP" else ""  # the engine chooses: any address may be meant
        for pid in ports.holders(host, number):
            if not subject.ends(pid):
                who = proc.describe(pid) if pid else "a process that cannot be seen"
                place = f"of {host}" if host else f"({what})"
                repair = "declare another listen.port, or end that process" if host else "declare another one"
                found.append(fatal(f"port {number} {place} is held by {who}", repair, pid=pid, unit=proc.unit(pid)))
        waiting += ports.in_time_wait(number)
    if found or not waiting:
        return found
    return [
        passed(f"{waiting} closed connections are in TIME_WAIT, which keeps nobody from listening", time_wait=waiting)
    ]


def other_services(subject):
    """No other service of the host, running or not, has a port of this one, or could pick it at random."""
    release = subject.release
    mine, my_range = port_plan.fixed(release), port_plan.random(release)
    found = []
    for name in paths.services():
        if paths.unit_name(name) in subject.freed:
            continue
        other = _committed(name)
        if other is None or set(other["gpus"]) & set(release["gpus"]):
            continue  # two services of one claim never run at once, and may share a port
        theirs, their_range = port_plan.fixed(other), port_plan.random(other)
        for number in sorted(set(mine) & set(theirs)):
            found.append(
                fatal(
                    f"port {number} ({mine[number]}) is also the {theirs[number]} port of service {name}",
                    "declare another port for one of them",
                )
            )
        for chooser, numbers, wide in ((release["service"], theirs, my_range), (name, mine, their_range)):
            hit = [number for number in numbers if wide and wide[0] <= number <= wide[1]]
            if hit:
                found.append(
                    warning(
                        f"{chooser} picks its NCCL port at random between {wide[0]} and {wide[1]}, where port {hit[0]} "
                        f"of {name if chooser != name else release['service']} lies",
                        f"declare options.nccl_port for {chooser}",
                    )
                )
        if my_range and their_range and my_range[0] <= their_range[1] and their_range[0] <= my_range[1]:
            found.append(
                warning(
                    f"{release['service']} and {name} both pick their NCCL port at random from one range, and can meet",
                    "declare options.nccl_port for both",
                )
            )
    return found


def _committed(name):
    try:
        pointer = releases.committed(name)
        return releases.load(name, pointer["release"]) if pointer else None
    except DamagedError:
        return None  # the service's own checks name it
    except HostError:
        return None


def interfaces(subject):
    """The network interfaces that NCCL and Gloo are told are there and up."""
    environment, found = subject.release["environment"], []
    # Not /sys/class/net, which can be that of another network name space.
    links = [name for _number, name in socket.if_nameindex()]
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        value = environment.get(variable)
        if not value or value.startswith("^"):
            continue  # what is excluded need not be there
        exact = value.startswith("=") or variable != "NCCL_SOCKET_IFNAME"  # NCCL takes beginnings of names
        wanted = [name.partition(":")[0] for name in value.lstrip("=").split(",") if name]
        names = [link for link in links for name in wanted if link == name or (not exact and link.startswith(name))]
        if not names:
            message = f"{variable}={value} names no interface of this host; there are {', '.join(links)}"
            found.append(fatal(message, f"declare one of them as {variable}"))
        elif not any(_up(link) for link in names):
            found.append(fatal(f"{variable}={value}: {', '.join(names)} is down", f"ip link set {names[0]} up"))
    return found


def _up(link):
    """Administratively up, and with a carrier: the flags of netdevice(7)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        answer = fcntl.ioctl(handle, _SIOCGIFFLAGS, struct.pack("16sH14x", link.encode(), 0))
    return struct.unpack("16sH14x", answer)[1] & _UP_AND_RUNNING == _UP_AND_RUNNING


def host_name(subject):
    """With several nodes: the host's name is not a loopback address, which Gloo would tell the others.

    Gloo takes the first address of the name that it can bind (tcp/device.cc, lookupAddrForHostname), torch 127.0.0.1
    where there is none (ProcessGroupGloo::createDefaultDevice), and neither where GLOO_SOCKET_IFNAME is declared.
    """
    release = subject.release
    if (arguments.number(release, "--nnodes") or 1) < 2 or release["environment"].get("GLOO_SOCKET_IFNAME"):
        return []
    name = socket.gethostname()
    repair = f"put the address that the others reach and {name} first into /etc/hosts, or declare GLOO_SOCKET_IFNAME"
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return [fatal(f"the host's own name {name} cannot be resolved", repair)]
    first = next((where[0] for family, *_kind, where in entries if _own(family, where)), None)
    if first is None:
        addresses = ", ".join(sorted({entry[4][0] for entry in entries}))
        return [fatal(f"the host's name {name} is {addresses}, which is no address of this host", repair)]
    if first.startswith("127.") or first == "::1":
        return [fatal(f"the host's name {name} is {first}, which other nodes would connect to", repair)]
    return []


def _own(family, where):
    """True for an address that a socket of this host can be bound to."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as server:
            server.bind(where)
            return True
    except OSError:
        return False
