"""Who listens on a TCP port. Sockets in TIME_WAIT have no listener and do not stop a server from starting."""

from __future__ import annotations

import contextlib
import os
import socket

from . import proc

_LISTEN, _TIME_WAIT = "0A", "06"


def _inodes(address, port):
    wild = {"0" * 8, "0" * 32}
    wanted = _forms(address)
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as stream:
                rows = [line.split() for line in stream][1:]
        except OSError:
            continue
        for row in rows:
            host, number = row[1].rsplit(":", 1)
            if row[3] == _LISTEN and int(number, 16) == port and (not wanted or host in wild or host in wanted):
                found.add(row[9])
    return found


def in_time_wait(port):
    """Number of closed connections to a port that the kernel still remembers. They keep nobody from listening."""
    found = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table) as stream:
            rows = [line.split() for line in stream][1:]
            found += sum(row[3] == _TIME_WAIT and int(row[1].rsplit(":", 1)[1], 16) == port for row in rows)
    return found


def _forms(address):
    """Forms of an address in /proc/net/tcp*; none for an address that overlaps with every other."""
    if address in ("0.0.0.0", "::", ""):
        return set()
    forms = set()
    for family, _kind, _proto, _name, where in _resolve(address):
        packed = socket.inet_pton(family, where[0])
        words = [packed[i : i + 4][::-1].hex().upper() for i in range(0, len(packed), 4)]
        forms.add("".join(words))
        if family == socket.AF_INET:
            forms.add("0" * 16 + "FFFF0000" + words[0])  # an IPv6 socket that takes IPv4 connections
    return forms


def _resolve(address):
    try:
        return socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return []


def _free(address, port):
    """True when an IPv4 address can be bound all the same: what listens does so on IPv6 only.

    /proc/net/tcp6 does not tell which sockets also take IPv4 connections.
    """
    places = _resolve(address) if address else []
    try:
        for family, kind, _protocol, _name, where in places:
            if family != socket.AF_INET:
                return False
            with socket.socket(family, kind) as server:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do, for what is in TIME_WAIT
                server.bind((where[0], port))
    except OSError:
        return False
    return bool(places)


def holders(address, port):
    """Pids that listen on the port at an address that overlaps. Needs root to see other users' processes."""
    inodes = {f"socket:[{inode}]" for inode in _inodes(address, port)}
    if not inodes or _free(address, port):
        return []
    found = []
    for pid in proc.all_pids():
        try:
            handles = os.listdir("/proc/%d/fd" % pid)
        except OSError:
            continue
        for handle in handles:
            try:
                if os.readlink("/proc/%d/fd/%s" % (pid, handle)) in inodes:
                    found.append(pid)
                    break
            except OSError:
                continue
    return found or [0]  # listening, but the holder cannot be seen (another network of the same name space)
