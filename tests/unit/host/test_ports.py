"""Who listens on a port."""

from __future__ import annotations

import os
import socket

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import ports


@pytest.mark.parametrize(
    ("bound", "asked", "held"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("::", "127.0.0.1", True),
        ("::", "0.0.0.0", True),
        ("::1", "0.0.0.0", False),
    ],
)
def test_a_listener_whose_address_overlaps_is_found(bound, asked, held):
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((bound, 0))
        server.listen()
        assert ports.holders(asked, server.getsockname()[1]) == ([os.getpid()] if held else [])


def test_a_listener_on_ipv6_only_holds_no_ipv4_port():
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind(("::", 0))
        server.listen()
        port = server.getsockname()[1]
        assert [ports.holders(address, port) for address in ("127.0.0.1", "0.0.0.0")] == [[], []]
        assert [ports.holders(address, port) for address in ("::", "::1", "")] == [[os.getpid()]] * 3


def test_a_connection_in_time_wait_holds_nothing():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _address = server.accept()
        accepted.close()
        client.close()
    assert ports.holders("127.0.0.1", port) == []
