"""The proof of NCCL's settings on a terminal."""

from __future__ import annotations

from tests.unit.report.test_text import of, shown

RANK = {"pid": 10, "gpu": "60", "version": "2.28.9", "channels": 16, "variables": {"NCCL_PROTO": "LL"}}
PROOF = {
    "time": "2026-11-30T02:00:00+00:00",
    "declared": {"NCCL_IB_HCA": "mlx5", "NCCL_PROTO": "LL"},
    "undeclared": [{"name": "NCCL_NVLS_ENABLE", "value": "0", "source": "/etc/nccl.conf"}],
    "ranks": [
        {**RANK, "rank": 0, "connections": [{"from": 0, "to": 1, "via": "P2P/CUMEM", "channels": "0-15"}]},
        {**RANK, "rank": 1, "connections": [], "variables": {"NCCL_PROTO": "LL", "NCCL_NVLS_ENABLE": "0"}},
    ],
    "choices": [
        {
            "function": "AllReduce",
            "bytes": 14336,
            "algorithm": "RING",
            "protocol": "LL",
            "channels": 1,
            "calls": 2,
        }
    ],
    "libraries": [{"path": "/v/libnccl.so.2", "sha256": "ab" * 32, "deleted": False, "pids": [10]}],
    "warnings": ["NCCL_P2P_LEVEL=SYS is declared, and no connection uses P2P"],
    "compared_with": 3,
    "changes": [{"field": "channels", "old": "24", "new": "16"}],
}


def row(text: str, first: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def test_a_proof_is_a_few_tables() -> None:
    text = shown(of("proof", {"service": "kimi", "verdict": "ok", "release": 4, "proof": PROOF}))
    assert row(text, "0") == ["0", "10", "60", "2.28.9", "16", "rank", "1", "via", "P2P/CUMEM", "(0-15)"]
    assert row(text, "NCCL_PROTO") == ["NCCL_PROTO", "LL", "LL", "declaration"]
    assert row(text, "NCCL_IB_HCA") == ["NCCL_IB_HCA", "mlx5", "not", "shown", "declaration"]
    assert "-         not shown (rank 0), 0 (rank 1)  /etc/nccl.conf" in text
    assert row(text, "AllReduce") == ["AllReduce", "14336", "RING", "LL", "1", "2"]
    assert "ab" * 32 in text
    assert "no connection uses P2P" in text
    assert "channels  24 -> 16" in text


def test_a_service_without_a_proof_says_so() -> None:
    text = shown(of("proof", {"service": "kimi", "verdict": "ok", "release": 4, "message": "release 4 has no proof"}))
    assert "release 4 has no proof" in text


def test_a_gate_that_could_not_decide_is_not_counted_as_passed() -> None:
    gates = [
        {"id": "identity", "verdict": "passed", "message": ""},
        {"id": "nccl", "verdict": "skipped", "message": "this start wrote no NCCL log"},
    ]
    text = shown(of("deploy", {"service": "kimi", "verdict": "committed", "release": 4, "gates": gates}))
    assert "1 passed: identity; 1 skipped: nccl" in text
