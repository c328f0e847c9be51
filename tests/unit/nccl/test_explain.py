from __future__ import annotations

import pytest

from servewright.nccl import profiles, sources
from servewright.nccl.explain import explain
from servewright.nccl.facts import Facts
from servewright.nccl.importer import import_profile

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


def test_settings_files_are_explained_with_their_line() -> None:
    etc = sources.conf_file("NCCL_PROTO=Simple\nNCCL_IB_HCA=mlx5\n", "/etc/nccl.conf")
    conf = sources.conf_file("NCCL_ALGO = Tree\n", "/root/.nccl.conf")
    rows = {e.variable: e for e in explain(profiles.resolve("pcie-ll-ring"), PCIE, conf, etc)}
    assert rows["NCCL_PROTO"].value == "LL"
    assert (rows["NCCL_IB_HCA"].origin, rows["NCCL_IB_HCA"].effect) == ("/etc/nccl.conf:2", False)
    assert (rows["NCCL_ALGO "].origin, rows["NCCL_ALGO "].effect) == ("/root/.nccl.conf:1", False)


def test_unknown_facts_leave_the_effect_open() -> None:
    (row,) = explain(profiles.resolve(None, (), {"NCCL_IB_HCA": "mlx5"}))
    assert row.effect


def test_import_takes_the_nccl_settings_and_their_lines() -> None:
    profile = import_profile(UNIT, "old-vllm", "vllm.service", {"/etc/default/vllm": "NCCL_NTHREADS=256\n"})
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
        import_profile("[Service]\nEnvironmentFile=/etc/default/vllm\n", "x", "u.service")
