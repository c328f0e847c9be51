"""Rendering: the same input gives the same bytes, and the unit holds what it must."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servewright.release.render import render
from servewright.release.service import declared
from servewright.spec import validate
from servewright.spec.positions import definitions
from tests.unit.spec.samples import service

ROOT = Path(__file__).parents[3]
SIX = {
    "NCCL_PROTO": "LL",
    "NCCL_ALGO": "Ring",
    "NCCL_P2P_LEVEL": "SYS",
    "NCCL_MAX_NCHANNELS": "16",
    "NCCL_BUFFSIZE": "16777216",
    "NCCL_NTHREADS": "512",
}


def rendered(nccl=None, **changes):
    (valid,) = validate.services([service(**changes)])
    return render(valid, nccl or {}, ROOT / "templates")


def reference(name: str):
    """The reference inventory's release, with SGLang or vLLM."""
    variables = {}
    for variable, value, _positions in definitions(
        ROOT / "inventory/group_vars/llm.yml", {"servewright_services", "servewright_host"}
    )[0]:
        variables[variable] = value
    if name == "vllm":
        ((one,), _problems) = definitions(ROOT / "inventory/group_vars/vllm.yml.example", {"servewright_services"})
        variables["servewright_services"] = one.value
    (release,), _secrets = declared(variables, [], ROOT / "templates", None)
    return release


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_the_reference_inventory_holds_the_six_settings(engine):
    release = reference(engine)
    assert {name: release["environment"][name] for name in release["nccl"]} == SIX
    for name, value in SIX.items():
        assert f'Environment="{name}={value}"' in release["unit"]
    assert release["gpus"] == list(range(8))


def test_sglang_names_its_attention_backend_and_expects_it_back():
    release = reference("sglang")
    assert release["argv"][release["argv"].index("--attention-backend") + 1] == "flashinfer"
    assert release["expected"] == {"tp_size": 8, "attention_backend": "flashinfer", "max_running_requests": 64}


@pytest.mark.parametrize(("attention", "limit"), [({}, 384), ({"enable_dp_attention": True}, 48)])
def test_only_data_parallel_attention_divides_the_limit_among_the_ranks(attention, limit):
    parallelism = {"tensor": 8 if attention else 1, "data": 8}
    release = rendered(
        gpus=list(range(8)), parallelism=parallelism, options={"max_running_requests": 384}, extra_args=attention
    )
    assert release["expected"]["max_running_requests"] == limit


def test_the_same_service_gives_the_same_bytes():
    one = rendered(environment={"B": "2", "A": "1"}, extra_args={"y": 1, "x": {"b": 1, "a": 2}})
    two = rendered(environment={"A": "1", "B": "2"}, extra_args={"x": {"a": 2, "b": 1}, "y": 1})
    assert json.dumps(one) == json.dumps(two)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ["--flag"]),
        (False, []),
        (None, []),
        (3, ["--flag", "3"]),
        (0.9, ["--flag", "0.9"]),
        ("a b", ["--flag", "a b"]),
        (["a", 1], ["--flag", "a", "1"]),
        ({"k": {"b": [1, "ü"], "a": None}}, ["--flag", '{"k":{"a":null,"b":[1,"ü"]}}']),
    ],
)
def test_a_further_argument_becomes_words(value, words):
    assert rendered(extra_args={"flag": value})["argv"][len(rendered()["argv"]) :] == words


def test_a_secret_is_only_named():
    release = rendered(secrets={"HF_TOKEN": {"variable": "vault_token"}})
    assert release["secrets"] == {"HF_TOKEN": {"variable": "vault_token"}}
    assert "EnvironmentFile=/etc/servewright/tiny/releases/@release@/environment" in release["unit"]


LINES = [
    "Type=exec", "KillMode=mixed", "LimitMEMLOCK=infinity", "LimitNOFILE=1048576", "Restart=always",
    "RestartPreventExitStatus=2", "TimeoutStartSec=300", "TimeoutStopSec=120", "PrivateTmp=yes",
    "User=llm-tiny", "NoNewPrivileges=yes",
]  # fmt: skip


def test_the_unit_is_one_that_a_gpu_engine_survives():
    lines = rendered()["unit"].splitlines()
    assert [line for line in LINES if line not in lines] == []
    settings = {line.split("=")[0] for line in lines if "=" in line and not line.startswith("#")}
    assert not settings & {"PrivateDevices", "MemoryDenyWriteExecute", "DevicePolicy", "ProtectClock", "PrivateIPC"}


def test_the_restart_limiter_stands_in_unit_and_can_trip():
    unit = rendered()["unit"]
    head = unit.split("[Service]")[0]
    assert "StartLimitBurst=3" in head
    # three failures, each at the very end of a load, still fall into the window
    assert f"StartLimitIntervalSec={3 * (15 + 300 + 1800)}" in head


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_one_flag_stands_on_one_line(engine):
    unit = rendered(engine=engine)["unit"]
    command = unit.split("ExecStart=")[1].split("\n\n")[0].split("ExecStopPost")[0].splitlines()
    assert [line.split()[0] for line in command[1:]] == [
        word for word in rendered(engine=engine)["argv"] if word.startswith("--")
    ]


@pytest.mark.failure("6.20")
def test_caches_are_keyed_by_engine_so_that_a_rollback_finds_its_own():
    assert rendered(version="0.5.22")["cache"] != rendered(version="0.5.23")["cache"]
    assert rendered()["environment"]["TRITON_CACHE_DIR"].startswith(rendered()["cache"])


@pytest.mark.parametrize(
    ("declared", "written"),
    [(15, "15"), (0.5, "0.5"), (1234567, "1234567"), (12345.678, "12345.678"), (100000.25, "100000.25")],
)
def test_a_time_is_written_as_systemd_reads_it(declared, written):
    (valid,) = validate.services([service(limits={"restart_delay": declared, "stop_timeout": declared})])
    unit = render(valid, {}, ROOT / "templates")["unit"].splitlines()
    assert {f"RestartSec={written}", f"TimeoutStopSec={written}"} < set(unit)
