"""A closed network for one run: a switch with the hosts and this machine on it, and nothing behind it.

The switch is a bridge in a network namespace of its own. So packets between hosts do not pass the firewall of
the machine, which Docker, for one, sets to drop what it does not know. And because no way leads out of the
namespace, a host that calls an address elsewhere gets "unreachable" at once, whatever the machine forwards.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from tests.testbed.command import execute
from tests.testbed.errors import CommandFailed, TestbedError

GATEWAY, CONTROLLER, FIRST_HOST, LAST_HOST = 1, 2, 10, 254


def pool() -> IPv4Network:
    """The range that runs take their /24 from: $SERVEWRIGHT_TEST_NETWORK, or 10.213.0.0/16."""
    text = os.environ.get("SERVEWRIGHT_TEST_NETWORK") or "10.213.0.0/16"
    try:
        network = IPv4Network(text)
    except ValueError as error:
        raise TestbedError(f"SERVEWRIGHT_TEST_NETWORK={text} is not an IPv4 network: {error}") from error
    if network.prefixlen > 24 or not network.is_private:
        raise TestbedError(f"SERVEWRIGHT_TEST_NETWORK={text}: give a private range of /24 or larger")
    return network


def mac(address: IPv4Address) -> str:
    """The hardware address for an IP address.

    Derived, so that a new host on an old address does not wait for its neighbours to forget the old one.
    """
    return "02:54:" + ":".join(f"{byte:02x}" for byte in address.packed)


def taken_by(wanted: IPv4Network, addresses: list[Any], routes: list[Any]) -> str | None:
    """What overlaps the wanted range, in words, or None; from what `ip -json` prints."""
    for interface in addresses:
        for entry in interface.get("addr_info", []):
            network = ipaddress.ip_network(f"{entry['local']}/{entry['prefixlen']}", strict=False)
            if network.overlaps(wanted):
                return f"interface {interface['ifname']} has {entry['local']}/{entry['prefixlen']}"
    for route in routes:
        network = ipaddress.ip_network("0.0.0.0/0" if route["dst"] == "default" else route["dst"])
        # a route for half of the Internet is a VPN's way of saying default
        if network.prefixlen >= 8 and network.overlaps(wanted):
            return f"route to {route['dst']}" + (f" by {route['dev']}" if "dev" in route else "")
    return None


class Network:
    """One run's network, made at once; `close` takes it away."""

    def __init__(self, subnet: IPv4Network, switch: str) -> None:
        self.subnet = subnet
        self.switch = switch
        self.gateway = subnet[GATEWAY]
        self.controller = subnet[CONTROLLER]
        self._hosts = itertools.cycle(subnet[number] for number in range(FIRST_HOST, LAST_HOST + 1))

    def next_address(self, used: Iterable[IPv4Address]) -> IPv4Address:
        """An address for a new host, as long unused as can be: peers may remember the host it belonged to."""
        busy = set(used)
        for address in itertools.islice(self._hosts, LAST_HOST - FIRST_HOST + 1):
            if address not in busy:
                return address
        raise TestbedError(f"all addresses of {self.subnet} are in use")

    def namespace(self, host: str) -> str:
        """The name of a host's network namespace."""
        return f"{self.switch}-{host}"

    def plug(self, host: str, address: IPv4Address) -> None:
        """Give the host a network card, eth0, and put its cable in."""
        namespace, port = self.namespace(host), _port(address)
        execute(["ip", "netns", "add", namespace])
        _batch(
            self.switch,
            f"link add {port} type veth peer name eth0 address {mac(address)} netns {namespace}",
            f"link set {port} master bridge up",
        )
        _batch(
            namespace,
            "link set lo up",
            f"address add {address}/{self.subnet.prefixlen} dev eth0",
            "link set eth0 up",
            f"route add default via {self.gateway}",
        )

    def unplug(self, host: str, address: IPv4Address) -> None:
        """Take the network card away, if there is one."""
        if self.namespace(host) in _namespaces():
            # the port first: else it outlives the namespace for a moment, and keeps its name from the next
            if f" {_port(address)}@" in execute(["ip", "-n", self.switch, "-o", "link", "show"]):
                _batch(self.switch, f"link del {_port(address)}")
            execute(["ip", "netns", "del", self.namespace(host)])

    def set_cable(self, address: IPv4Address, *, connected: bool) -> None:
        """Pull the cable of a host or put it back."""
        _batch(self.switch, f"link set {_port(address)} {'up' if connected else 'down'}")

    def close(self) -> None:
        """Take the network away, with all hosts that are still plugged in."""
        remove(self.switch, self.subnet)


def claim(wanted: IPv4Network) -> IPv4Network:
    """Take the first free /24 of the wanted range for a run. Raises TestbedError when none is free."""
    addresses = json.loads(execute(["ip", "-json", "-4", "address", "show"]))
    routes = json.loads(execute(["ip", "-json", "-4", "route", "show", "table", "all"]) or "[]")
    reason = None
    for subnet in wanted.subnets(new_prefix=24):
        conflict = taken_by(subnet, addresses, routes)
        if conflict is None:
            if _set_dead_end(subnet):
                return subnet
            conflict = f"another run has just taken {subnet}"
        reason = reason or conflict
    raise TestbedError(
        f"no free network for test hosts in {wanted} ({reason}):"
        " set SERVEWRIGHT_TEST_NETWORK to a private range that is not in use here, for example 172.29.0.0/16"
    )


def open_network(subnet: IPv4Network, switch: str) -> Network:
    """Make a network on a subnet that has been claimed.

    Args:
        subnet: its addresses.
        switch: a name that no other run has, of at most 15 characters, because an interface is called so too.

    Raises:
        TestbedError: networks cannot be made here.
    """
    network = Network(subnet, switch)
    try:
        _wire(network)
    except CommandFailed as error:
        remove(switch, subnet)
        raise TestbedError(_refusal(error)) from error
    return network


def remove(switch: str, subnet: IPv4Network) -> None:
    """Take away what is left of a run's network; the claim last, so that nobody takes the subnet before."""
    # by its name, because the kernel takes it away with the other end of the cable only a moment later
    _quietly(["ip", "link", "del", switch])
    for namespace in _namespaces():
        if namespace == switch or namespace.startswith(f"{switch}-"):
            execute(["ip", "netns", "del", namespace])
    _quietly(["ip", "route", "del", *_dead_end(subnet)])


def _set_dead_end(subnet: IPv4Network) -> bool:
    """Say by a route that the subnet is unreachable; False when another run has said so.

    That the kernel lets only one of them do it makes it the claim. And should the interface go down, it keeps packets
    to hosts from taking the default route out of here.
    """
    try:
        execute(["ip", "route", "add", *_dead_end(subnet)])
    except CommandFailed as error:
        if "File exists" in error.result.stderr:
            return False
        raise TestbedError(_refusal(error)) from error
    return True


def _refusal(error: CommandFailed) -> str:
    return (
        f"cannot set up the network of test hosts ({error.result.stderr.strip()}):"
        " run them on the machine itself or in a privileged container"
    )


def _wire(network: Network) -> None:
    """Put the switch together and connect this machine to it."""
    switch, bits = network.switch, network.subnet.prefixlen
    execute(["ip", "netns", "add", switch])
    _batch(
        switch,
        "link set lo up",
        f"link add bridge address {mac(network.gateway)} type bridge stp_state 0 forward_delay 0",
        f"address add {network.gateway}/{bits} dev bridge",
        "link set bridge up",
        "route add unreachable default",
    )
    # the gateway answers "unreachable" only while it would forward, and by default no more than once a second
    script = "cd /proc/sys/net/ipv4 && echo 1 > ip_forward && echo 0 > icmp_ratelimit"
    execute(["ip", "netns", "exec", switch, "sh", "-c", script])
    execute(
        ["ip", "-batch", "-"],
        stdin="\n".join(
            (
                f"link add {switch} address {mac(network.controller)} type veth peer name machine netns {switch}",
                f"link set {switch} addrgenmode none up",
                f"address add {network.controller}/{bits} dev {switch}",
            )
        ),
    )
    _batch(switch, "link set machine master bridge up")


def _dead_end(subnet: IPv4Network) -> list[str]:
    return ["unreachable", str(subnet), "metric", "4096"]


def _batch(namespace: str, *commands: str) -> None:
    execute(["ip", "-n", namespace, "-batch", "-"], stdin="\n".join(commands))


def _quietly(argv: list[str]) -> None:
    with contextlib.suppress(CommandFailed):
        execute(argv)


def _namespaces() -> list[str]:
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def _port(address: IPv4Address) -> str:
    return f"host{address.packed[3]}"
