"""Ports, interfaces and the host's name."""

from __future__ import annotations

import socket

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import paths, port_plan, ports, proc, releases
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import network
from tests.unit.host.preflight.conftest import drop_in, said


def attention(*ports):
    return dict.fromkeys(ports, "data parallel attention")


@pytest.mark.parametrize(
    ("engine", "words", "plan"),
    [
        ("sglang", [], {30000: "HTTP"}),
        ("sglang", ["--nccl-port", "7"], {30000: "HTTP", 7: "NCCL"}),
        ("sglang", ["--grpc-port=8"], {30000: "HTTP", 8: "gRPC"}),
        ("sglang", ["--dist-init-addr", "10.0.0.1:9"], {30000: "HTTP", 9: "rendezvous"}),
        ("sglang", ["--dist-init-addr", "h"], {30000: "HTTP"}),
        ("sglang", ["--dist-init-addr", "h:9", "--nccl-port", "7"], {30000: "HTTP", 9: "rendezvous"}),
        ("sglang", ["--enable-dp-attention"], {30000: "HTTP", **attention(*range(30233, 30240), 30013)}),
        ("sglang", ["--attn-dp-size", "2"], {30000: "HTTP", **attention(*range(30233, 30240), 30013)}),
        ("sglang", ["--attn-dp-size", "1"], {30000: "HTTP"}),
        ("sglang", ["--enable-dp-attention", "--dist-init-addr", "h:20000"],
         {30000: "HTTP", 20000: "rendezvous", **attention(*range(20001, 20007), 20013)}),
        ("sglang", ["--enable-dp-attention", "--dist-init-addr", "h:20000", "--nnodes", "2", "--node-rank", "1"],
         {30000: "HTTP", 20000: "rendezvous", **attention(*range(20001, 20007))}),
        ("sglang", ["--enable-dp-attention", "--dist-init-addr", "h:65530", "--node-rank", "1"],
         {30000: "HTTP", 65530: "rendezvous", **attention(*range(65523, 65529))}),
        ("sglang", ["--disaggregation-mode", "prefill"], {30000: "HTTP", 8998: "disaggregation bootstrap"}),
        ("sglang", ["--disaggregation-mode", "prefill", "--disaggregation-bootstrap-port", "9"],
         {30000: "HTTP", 9: "disaggregation bootstrap"}),
        ("sglang", ["--disaggregation-mode", "decode", "--disaggregation-bootstrap-port", "9"], {30000: "HTTP"}),
        ("sglang", ["--disaggregation-mode", "decode", "--enable-pd-role-switch"],
         {30000: "HTTP", 8998: "disaggregation bootstrap"}),
        ("vllm", ["--nnodes", "2"], {30000: "HTTP", 29501: "rendezvous"}),
        ("vllm", ["--nnodes", "2", "--master-port", "9"], {30000: "HTTP", 9: "rendezvous"}),
        ("vllm", ["--nnodes", "2", "--node-rank", "1"], {30000: "HTTP"}),
        ("vllm", ["--master-port", "9"], {30000: "HTTP"}),
        ("vllm", ["--data-parallel-rpc-port", "9"], {30000: "HTTP", 9: "data parallel RPC"}),
        ("vllm", ["--enable-dp-attention"], {30000: "HTTP"}),
    ],
)  # fmt: skip
def test_the_ports_that_a_service_listens_on(subject, engine, words, plan):
    assert port_plan.fixed(subject(*words, engine=engine).release) == plan


@pytest.mark.parametrize(("http", "first"), [(65302, 65535), (65303, 65070), (65296, 65529)])
def test_the_ports_of_data_parallel_attention_where_there_are_none_so_high(subject, http, first):
    """As PortArgs.init_new of SGLang 0.5.23 gives them."""
    plan = port_plan.fixed(subject("--enable-dp-attention", listen={"host": "127.0.0.1", "port": http}).release)
    next_to_it = range(first + 1, first + 7) if first <= 65529 else range(first - 7, first - 1)
    assert plan == {http: "HTTP", **attention(first, *next_to_it, http + 13)}


@pytest.mark.parametrize(
    ("engine", "version", "gpus", "words", "found"),
    [
        ("sglang", "0.5.23", 2, [], (22000, 29999)),
        ("sglang", "0.5.24", 2, [], (22000, 29999)),
        ("sglang", "0.5.8", 2, [], (30100, 31000)),
        ("sglang", "0.5.9", 2, [], None),
        ("sglang", "0.5.23", 1, [], (22000, 29999)),
        ("sglang", "0.5.23", 2, ["--nccl-port", "7"], None),
        ("vllm", "0.32.0", 2, [], None),
    ],
)
@pytest.mark.failure("2.11")
def test_2_11_the_range_of_a_port_picked_at_random(subject, engine, version, gpus, words, found):
    assert port_plan.random(subject(*words, engine=engine, gpus=gpus, version=version).release) == found


@pytest.mark.parametrize(
    ("host", "port", "line", "message"),
    [
        ("127.0.0.1", 30000, "", ""),
        ("0.0.0.0", 1024, "", ""),
        ("", 30000, "", ""),
        ("192.0.2.7", 30000, "", "nobody can listen on 192.0.2.7 here: Cannot assign requested address"),
        ("127.0.0.1", 1023, "", "user llm-tiny may not listen on port 1023: it is below 1024"),
        ("127.0.0.1", 80, "AmbientCapabilities=CAP_NET_BIND_SERVICE", ""),
    ],
)
def test_the_service_can_listen_where_it_is_told_to(subject, root, monkeypatch, host, port, line, message):
    (root / "first").write_text("1024\n")
    monkeypatch.setattr(network, "UNPRIVILEGED", str(root / "first"))
    drop_in(root, f"[Service]\n{line}\n")
    found = said(network.address(subject(listen={"host": host, "port": port})))
    assert len(found) == bool(message)
    for severity, text, repair in found:
        assert (severity, text.startswith(message)) == ("fatal", True)
        assert repair == (
            "declare a listen.port from 1024 on, or lower net.ipv4.ip_unprivileged_port_start"
            if "below" in text
            else "declare an address of this host"
        )


def test_every_port_of_the_plan_is_looked_at_and_its_holder_named(subject, monkeypatch):
    asked = {}

    def holders(address, port):
        asked[port] = address
        return {30000: [11], 7: [12, 13], 8: [0]}.get(port, [])

    monkeypatch.setattr(ports, "holders", holders)
    monkeypatch.setattr(ports, "in_time_wait", lambda port: 2)
    monkeypatch.setattr(proc, "describe", lambda pid: f"pid {pid} (x)")
    monkeypatch.setattr(proc, "unit", lambda pid: {11: "tiny.service", 12: "other.service"}.get(pid, ""))
    found = subject("--nccl-port", "7", "--grpc-port", "8")
    found.__dict__["_strays"] = {13: "proof"}
    assert [item["evidence"] for item in network.port(found)] == [
        {"pid": 12, "unit": "other.service"}, {"pid": 0, "unit": ""}
    ]  # fmt: skip
    assert said(network.port(found)) == [
        ("fatal", "port 7 (NCCL) is held by pid 12 (x)", "declare another one"),
        ("fatal", "port 8 (gRPC) is held by a process that cannot be seen", "declare another one"),
    ]
    assert asked == {30000: "127.0.0.1", 7: "", 8: ""}
    found.freed.clear()
    assert said(network.port(found))[0] == (
        "fatal",
        "port 30000 of 127.0.0.1 is held by pid 11 (x)",
        "declare another listen.port, or end that process",
    )


@pytest.mark.parametrize(
    ("engine", "words", "message"),
    [
        ("sglang", ["--nccl-port", "30000"], "port 30000 is the service's own for HTTP and for NCCL"),
        ("sglang", ["--nccl-port", "7", "--grpc-port", "7"], "port 7 is the service's own for NCCL and for gRPC"),
        ("sglang", ["--nccl-port", "30235", "--enable-dp-attention"],
         "port 30235 is the service's own for NCCL and for data parallel attention"),
        ("sglang", ["--nccl-port", "9", "--dist-init-addr", "h:9"], ""),
        ("vllm", ["--nnodes", "2", "--data-parallel-rpc-port", "29501"],
         "port 29501 is the service's own for rendezvous and for data parallel RPC"),
    ],
)  # fmt: skip
def test_one_port_for_two_things_of_a_service(subject, monkeypatch, engine, words, message):
    monkeypatch.setattr(ports, "holders", lambda address, port: [])
    monkeypatch.setattr(ports, "in_time_wait", lambda port: 0)
    wanted = [("fatal", message, "declare another one for one of them")] if message else []
    assert said(network.port(subject(*words, engine=engine))) == wanted


@pytest.mark.failure("2.6")
def test_2_6_closed_connections_are_told_and_refuse_nothing(subject, monkeypatch):
    monkeypatch.setattr(ports, "holders", lambda address, port: [])
    monkeypatch.setattr(ports, "in_time_wait", lambda port: 3)
    ((severity, message, _repair),) = said(network.port(subject()))
    assert (severity, "3 closed connections are in TIME_WAIT" in message) == ("ok", True)
    monkeypatch.setattr(ports, "in_time_wait", lambda port: 0)
    assert network.port(subject()) == []


@pytest.fixture
def beside(subject, monkeypatch):
    """Findings about the ports of `tiny` beside another committed service."""

    def look(mine, theirs, gpus=0, their_gpus=(7, 8), port=30001, freed=False, version="0.5.23"):
        listen = {"host": "127.0.0.1", "port": port}
        other = subject(*theirs, gpus=2, service="other", listen=listen, version=version).release
        other["gpus"] = list(their_gpus)
        monkeypatch.setattr(paths, "services", lambda: ["tiny", "other", "gone", "new"])
        pointers = {"other": {"release": 1}, "tiny": {"release": 1}, "gone": None, "new": None}
        monkeypatch.setattr(releases, "committed", pointers.get)
        monkeypatch.setattr(releases, "load", lambda name, number: other)
        found = subject(*mine, gpus=gpus, version=version)
        found.freed |= {"other.service"} if freed else set()
        return said(network.other_services(found))

    return look


QUIET = ["--nccl-port", "7"]


@pytest.mark.failure("2.11")
def test_2_11_ports_of_two_services_of_a_host(beside):
    assert beside(["--nccl-port", "30001"], QUIET) == [
        ("fatal", "port 30001 (NCCL) is also the HTTP port of service other", "declare another port for one of them")
    ]
    assert beside(["--nccl-port", "30001"], QUIET, freed=True) == []
    assert beside(["--nccl-port", "30001"], QUIET, gpus=1, their_gpus=(0,)) == []  # one claim: never both at once
    assert beside(["--nccl-port", "30002"], QUIET) == []
    mine = beside([], QUIET, gpus=2, port=29999)
    assert mine == [
        (
            "warning",
            "tiny picks its NCCL port at random between 22000 and 29999, where port 29999 of other lies",
            "declare options.nccl_port for tiny",
        )
    ]
    assert beside([], QUIET, gpus=2, port=22000) != []
    assert beside([], QUIET, gpus=2, port=21999) == beside([], QUIET, gpus=2, port=30000 + 5) == []
    theirs = beside(["--nccl-port", "22001"], [])
    assert [row[2] for row in theirs] == ["declare options.nccl_port for other"]
    assert "other picks its NCCL port at random between 22000 and 29999, where port 22001 of tiny lies" in theirs[0][1]
    assert [(row[0], row[2]) for row in beside([], [], gpus=2)] == [("warning", "declare options.nccl_port for both")]


@pytest.mark.failure("2.11")
@pytest.mark.parametrize(
    ("port", "meet"), [(30900, True), (30901, False), (31000, False), (29100, True), (29099, False), (29000, False)]
)
def test_2_11_two_that_pick_at_random_meet_where_their_ranges_overlap(beside, port, meet):
    """Up to 0.5.8 from the 100th to the 1000th port after the HTTP port."""
    found = [row for row in beside([], [], gpus=2, port=port, version="0.5.8") if "both pick" in row[1]]
    assert bool(found) == meet


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("NCCL_SOCKET_IFNAME", "eth", ""),
        ("NCCL_SOCKET_IFNAME", "=eth", "NCCL_SOCKET_IFNAME==eth names no interface of this host; there are lo, eth0"),
        ("NCCL_SOCKET_IFNAME", "^docker", ""),
        ("NCCL_SOCKET_IFNAME", "ib0:1", "NCCL_SOCKET_IFNAME=ib0:1: ib0 is down"),
        ("NCCL_SOCKET_IFNAME", "ib0,eth0", ""),
        ("NCCL_SOCKET_IFNAME", "ib9,", "names no interface"),
        ("GLOO_SOCKET_IFNAME", "eth", "GLOO_SOCKET_IFNAME=eth names no interface"),
        ("GLOO_SOCKET_IFNAME", "eth0", ""),
        ("TP_SOCKET_IFNAME", "bond0", "TP_SOCKET_IFNAME=bond0 names no interface"),
    ],
)
def test_interfaces_that_the_engine_is_told(subject, monkeypatch, variable, value, message):
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "eth0"), (3, "ib0")])
    monkeypatch.setattr(network, "_up", lambda link: link != "ib0")
    found = said(network.interfaces(subject(environment={variable: value})))
    assert len(found) == bool(message)
    for severity, text, repair in found:
        assert (severity, message in text) == ("fatal", True)
        assert repair == ("ip link set ib0 up" if "down" in text else f"declare one of them as {variable}")


@pytest.mark.parametrize(
    ("nodes", "addresses", "message"),
    [
        ("1", ["127.0.1.1"], ""),
        ("2", ["127.0.1.1"], "is 127.0.1.1, which other nodes would connect to"),
        ("2", ["::1", "127.0.1.1"], "is ::1, which other nodes would connect to"),
        ("2", ["127.0.1.1", "10.0.0.5"], "is 127.0.1.1, which other nodes would connect to"),
        ("2", ["10.0.0.5", "127.0.1.1"], ""),
        ("2", ["10.0.0.9", "127.0.1.1"], "is 127.0.1.1, which other nodes would connect to"),
        ("2", ["10.0.0.9", "10.0.0.5"], ""),
        ("2", ["10.0.0.9"], "is 10.0.0.9, which is no address of this host"),
        ("2", ["10.0.0.5"], ""),
        ("2", None, "cannot be resolved"),
    ],
)
def test_with_several_nodes_the_hosts_name_is_no_loopback_address(subject, monkeypatch, nodes, addresses, message):
    def resolve(name, port, type):
        if addresses is None:
            raise socket.gaierror
        return [(socket.AF_INET, type, 0, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(network, "_own", lambda family, where: where[0] != "10.0.0.9")
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "gethostname", lambda: "node1")
    found = said(network.host_name(subject("--nnodes", nodes)))
    assert len(found) == bool(message)
    for severity, text, repair in found:
        assert (severity, message in text, "node1" in text, "/etc/hosts" in repair) == ("fatal", True, True, True)
    assert network.host_name(subject()) == []
    assert network.host_name(subject("--nnodes", nodes, environment={"GLOO_SOCKET_IFNAME": "eth0"})) == []


def test_an_address_of_this_host_is_one_that_can_be_bound():
    assert [network._own(socket.AF_INET, (address, 0)) for address in ("127.0.0.1", "192.0.2.7")] == [True, False]
