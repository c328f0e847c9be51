"""The ports of a service: those it is told, and those its engine derives or picks by itself. Data and pure functions.

Read in SGLang 0.5.23 (srt/server_args.py PortArgs.init_new, srt/utils/network.py,
srt/managers/data_parallel_controller.py, srt/managers/disagg_service.py) and vLLM 0.32.0 (config/parallel.py,
distributed/parallel_state.py).
"""

from __future__ import annotations

import re

from . import arguments

# Where SGLang takes its NCCL port from when it is not told one: first version, first version without it, lowest,
# highest, whether they are added to the HTTP port, source.
RANDOM_NCCL_PORTS = (
    ("", "0.5.9", 100, 1000, True, "verl-project/verl#3977, sgl-project/sglang#18009"),
    ("0.5.23", "", 22000, 29999, False, "SGLang 0.5.23 get_free_port_below_ephemeral"),
)
# With data-parallel attention SGLang has a first port, that of --dist-init-addr or its HTTP port + 233, and six next to
# it; and for a handshake the 13th after the one that it was told (ZMQ_TCP_PORT_DELTA, NUM_DERIVED_PORTS,
# DP_ATTENTION_HANDSHAKE_PORT_DELTA).
DP_ATTENTION_DELTA, DP_ATTENTION_DERIVED, DP_ATTENTION_HANDSHAKE = 233, 6, 13
_DP_ATTENTION_SIZE = ("--attn-dp-size", "--attention-data-parallel-size")
_HIGHEST = 65535


def _leads(release):
    return (arguments.number(release, "--nnodes") or 1) > 1 and not arguments.number(release, "--node-rank")


def _prefills(release):
    mode = arguments.value(release, "--disaggregation-mode")
    return mode == "prefill" or arguments.has(release, "--enable-pd-role-switch")


def _meets_at_the_nccl_port(release):
    return _address(release) is None


# Ports that a flag tells: the flag, what for, the port without it, and when the engine listens there, if not always.
# --disaggregation-bootstrap-port of a service that decodes is the port of another one.
_TOLD = {
    "sglang": (
        ("--nccl-port", "NCCL", None, _meets_at_the_nccl_port),
        ("--grpc-port", "gRPC", None, None),
        ("--engine-info-bootstrap-port", "bootstrap", None, None),
        ("--disaggregation-bootstrap-port", "disaggregation bootstrap", 8998, _prefills),
    ),
    "vllm": (
        ("--master-port", "rendezvous", 29501, _leads),
        ("--data-parallel-rpc-port", "data parallel RPC", None, None),
        ("--grpc-port", "gRPC", None, None),
    ),
}


def fixed(release):
    """Ports that a service will listen on, as {port: what for}."""
    return {port: uses[0] for port, uses in _uses(release).items()}


def twice(release):
    """Ports that a service would listen on for several things, as {port: [what for, ...]}."""
    return {port: uses for port, uses in _uses(release).items() if len(uses) > 1}


def _uses(release):
    found = {release["listen"]["port"]: ["HTTP"]}
    for flag, what, default, when in _TOLD[release["engine"]]:
        port = arguments.number(release, flag) or default
        if port and (when is None or when(release)):
            found.setdefault(int(port), []).append(what)
    for port, what in _sglang(release) if release["engine"] == "sglang" else ():
        found.setdefault(port, []).append(what)
    return found


def _sglang(release):
    """Ports that SGLang derives, as (port, what for)."""
    address, http = _address(release), release["listen"]["port"]
    found = [(address, "rendezvous")] if address else []
    size = arguments.number(release, *_DP_ATTENTION_SIZE) or 1
    if size == 1 and not arguments.has(release, "--enable-dp-attention"):
        return found
    above = http + DP_ATTENTION_DELTA
    first = address or (above if above <= _HIGHEST else http - DP_ATTENTION_DELTA)
    base = first + 1 if first + DP_ATTENTION_DERIVED <= _HIGHEST else first - DP_ATTENTION_DERIVED - 1
    ports = [*([] if address else [first]), *range(base, base + DP_ATTENTION_DERIVED)]
    if not arguments.number(release, "--node-rank"):
        ports.append((address or http) + DP_ATTENTION_HANDSHAKE)
    return found + [(port, "data parallel attention") for port in ports]


def _address(release):
    """The port of the address where SGLang is told that its ranks meet, or None."""
    port = (arguments.value(release, "--dist-init-addr", "--nccl-init-addr") or "").rpartition(":")[2]
    return int(port) if port.isdigit() else None


def random(release):
    """The range (lowest, highest) that the engine picks its NCCL port from, or None. One GPU is no exception."""
    if release["engine"] != "sglang" or arguments.number(release, "--nccl-port"):
        return None
    version = _key(release["version"])
    for since, until, low, high, added, _source in RANDOM_NCCL_PORTS:
        if version >= _key(since) and (not until or version < _key(until)):
            base = release["listen"]["port"] if added else 0
            return base + low, base + high
    return None


def _key(version):
    return [int(part) for part in re.findall(r"\d+", version)[:3]]
