from __future__ import annotations

import pytest

from servewright.nccl import profiles, systemd
from servewright.nccl.explain import explain
from servewright.nccl.facts import Facts
from servewright.nccl.importer import profile_of

PCIE = Facts(interconnect="pcie", nodes=1, nccl_version=(2, 28, 9))
UNIT = """[Service]
Environment="NCCL_PROTO=LL" "NCCL_ALGO=Ring"
Environment=VLLM_SKIP_P2P_CHECK=1 HF_TOKEN=secret
EnvironmentFile=/etc/default/vllm
ExecStart=/usr/bin/vllm
"""


def test_each_of_the_six_is_explained() -> None:
    rows = {e.variable: e for e in explain(profiles.resolve("pcie-ll-ring"), PCIE)}
    assert len(rows) == 6
    assert {name for name, row in rows.items() if not row.effect} == {"NCCL_BUFFSIZE", "NCCL_NTHREADS"}
    assert "Simple" in rows["NCCL_BUFFSIZE"].why_not[0]
    level = rows["NCCL_P2P_LEVEL"]
    assert (level.value, level.origin, level.effect) == ("SYS", "profile pcie-ll-ring v1", True)
    assert "longest path" in level.meaning
    assert "host bridge" in level.reason


def test_unknown_facts_leave_the_effect_open() -> None:
    (row,) = explain(profiles.resolve(None, (), {"NCCL_IB_HCA": "mlx5"}))
    assert row.effect


def test_import_takes_the_nccl_settings_and_their_lines() -> None:
    unit = systemd.unit(UNIT, "vllm.service", {"/etc/default/vllm": "NCCL_NTHREADS=256\n"})
    profile = profile_of(unit.entries, "old-vllm", "vllm.service")
    assert {name: setting.value for name, setting in profile.settings.items()} == {
        "NCCL_PROTO": "LL",
        "NCCL_ALGO": "Ring",
        "NCCL_NTHREADS": "256",
    }
    assert profile.settings["NCCL_ALGO"].reason == "taken from vllm.service:2"
    assert "secret" not in profile.model_dump_json()
    assert [row.value for row in profiles.resolve("old-vllm", [profile])] == ["Ring", "256", "LL"]


def test_import_of_a_unit_without_nccl() -> None:
    with pytest.raises(ValueError, match=r"sets no NCCL variable; not read: /etc/default/vllm"):
        profile_of([], "x", "u.service", ["/etc/default/vllm"])
