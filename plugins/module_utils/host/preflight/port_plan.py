"""The ports of a service: those it is told, and those its engine derives or picks by itself. Data and pure functions.

Read in SGLang 0.5.23 (srt/server_args.py PortArgs.init_new, srt/utils/network.py) and vLLM 0.32.0 (config/parallel.py).
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
# With data-parallel attention SGLang listens on its HTTP port + 233 and the six after it (ZMQ_TCP_PORT_DELTA).
DP_ATTENTION_DELTA, DP_ATTENTION_PORTS = 233, 7
_TOLD = {
    "sglang": (("--nccl-port", "NCCL"), ("--grpc-port", "gRPC"), ("--engine-info-bootstrap-port", "bootstrap")),
    "vllm": (
        ("--master-port", "rendezvous"),
        ("--data-parallel-rpc-port", "data parallel RPC"),
        ("--grpc-port", "gRPC"),
    ),
}


def fixed(release):
    """Ports that a service will listen on, as {port: what for}."""
    ports = {release["listen"]["port"]: "HTTP"}
    for flag, what in _TOLD[release["engine"]]:
        number = arguments.number(release, flag)
        if number:
            ports.setdefault(int(number), what)
    address = arguments.value(release, "--dist-init-addr", "--nccl-init-addr")
    if address and address.rpartition(":")[2].isdigit():
        ports.setdefault(int(address.rpartition(":")[2]), "rendezvous")
    elif release["engine"] == "sglang" and arguments.has(release, "--enable-dp-attention"):
        first = release["listen"]["port"] + DP_ATTENTION_DELTA
        for port in range(first, first + DP_ATTENTION_PORTS):
            ports.setdefault(port, "data parallel attention")
    return ports


def random(release):
    """The range (lowest, highest) that the engine picks its NCCL port from, or None."""
    if release["engine"] != "sglang" or arguments.number(release, "--nccl-port") or len(release["gpus"]) < 2:
        return None
    version = _key(release["version"])
    for since, until, low, high, added, _source in RANDOM_NCCL_PORTS:
        if version >= _key(since) and (not until or version < _key(until)):
            base = release["listen"]["port"] if added else 0
            return base + low, base + high
    return None


def _key(version):
    return [int(part) for part in re.findall(r"\d+", version)[:3]]
