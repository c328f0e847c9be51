"""`servewright nccl bench` and `tune` on a host: the real probe over a stand-in for torch, and what gives way to it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from servewright.nccl.measure import record
from servewright.nccl.profiles import Profile, built_in
from tests.hosts.commands import BIN, Library, invocation, rendered, servewright, service
from tests.simulator.install import engine_folder

FAKE_TORCH = Path(__file__).parents[1] / "unit/nccl_measure/fake_torch/torch"
QUICK = ("--decode", "1", "--prefill", "2", "--seconds", "1")
TINY = {"path": "/opt/simulator/tiny", "served_name": "kimi-k2.5", "context_length": 131072}


def kimi(**changes):
    environment = {"FAKE_GPUS": "H200,H200", **changes.pop("environment", {})}
    return service(gpus=[0, 1], parallelism={"tensor": 2}, model=TINY, environment=environment, **changes)


@pytest.fixture(scope="module")
def host(testbed, simulator):
    """A host whose sglang 0.5.23 has a stand-in for torch, and a model of hidden size 8."""

    def prepare(root: Path) -> None:
        simulator(root)
        packages = engine_folder(root, "sglang", "0.5.23") / "lib/python3.11/site-packages/torch"
        shutil.copytree(FAKE_TORCH, packages, ignore=shutil.ignore_patterns("__pycache__"))
        tiny = root / "opt/simulator/tiny"
        shutil.copytree(root / "opt/simulator/model", tiny)
        config = json.loads((tiny / "config.json").read_text())
        config.get("text_config", config)["hidden_size"] = 8
        config.get("text_config", config)["dtype"] = "bfloat16"
        (tiny / "config.json").write_text(json.dumps(config))
        broken = root / "opt/simulator/broken"
        shutil.copytree(tiny, broken)
        (broken / "config.json").write_text("{}")

    host = testbed.boot("gpu1", prepare=prepare)
    yield host
    testbed.destroy(host)


@pytest.fixture
def declare(host, tmp_path):
    def write(*services):
        path = tmp_path / "inventory.yml"
        hosts = {host.name: host.ansible_vars()}
        path.write_text(yaml.safe_dump({"llm": {"hosts": hosts, "vars": {"servewright_services": list(services)}}}))
        return str(path)

    return write


@pytest.fixture(scope="module")
def deployed(host):
    """kimi serves, and is never restarted but by what is tested."""
    library = Library(host)
    found = library.deploy(rendered(kimi(nccl={"profile": None})))
    assert found["verdict"] == "committed", found
    return library


REFUSED = [
    ({"gpus": [0], "parallelism": {"tensor": 1}}, (), "too-few-gpus: kimi claims 1 GPU"),
    ({"model": {**TINY, "path": "/opt/simulator/broken"}}, (), "model-config: config.json has no hidden_size"),
    ({"version": "0.5.22"}, (), "torch-missing: No module named 'torch'"),
    ({"version": "9.9.9"}, (), "sglang-9.9.9/bin/python is missing"),
    ({"gpus": [0, 9]}, (), "GPU 9 is not there"),
    ({}, ("--profiles", "pcie-ll-rng"), "pcie-ll-rng"),
]


@pytest.mark.parametrize(("changes", "options", "message"), REFUSED, ids=[row[2][:24] for row in REFUSED])
def test_what_cannot_be_measured_is_refused_by_name(host, declare, changes, options, message):
    before = host.run("ls /var/lib/servewright /usr/local/lib/servewright 2>&1", check=False).stdout
    changes = {**changes}
    done = servewright("nccl", "bench", "kimi", "-i", declare({**kimi(), **changes}), *QUICK, *options)
    assert message in done.text
    assert done.code in (1, 3), done.text
    assert "Traceback" not in done.text
    assert host.run("ls /var/lib/servewright /usr/local/lib/servewright 2>&1", check=False).stdout == before


def test_a_stranger_on_the_gpus_is_named(host, declare):
    host.run(
        "sleep 600 > /dev/null 2>&1 & echo $! > /run/p; mkdir -p /run/simulator/gpu;"
        "echo '{\"0\": 9000}' > /run/simulator/gpu/$(cat /run/p)"
    )
    try:
        done = servewright("nccl", "bench", "kimi", "-i", declare(kimi()), "--stop", *QUICK)
        assert done.code == 3, done.text
        assert "gpus-in-use: not by a service of servewright" in done.text
        assert "sleep" in done.text
    finally:
        host.run("p=$(cat /run/p); kill $p; rm -f /run/simulator/gpu/$p")


def test_a_service_that_serves_is_not_stopped_unasked(host, declare, deployed):
    serving = invocation(host)
    done = servewright("nccl", "bench", "kimi", "-i", declare(kimi()), *QUICK)
    assert done.code == 3, done.text
    assert "kimi holds the GPUs; --stop stops it" in done.text
    assert invocation(host) == serving


def test_bench_stops_measures_and_starts_again(host, declare, deployed, tmp_path):
    serving, out = invocation(host), tmp_path / "out"
    options = ("--stop", "--rehearsal", "--out", str(out), "--profiles", "pcie-ll-ring,pcie-throughput")
    done = servewright("nccl", "bench", "kimi", "-i", declare(kimi()), *QUICK, *options, "--reason", "a look")
    assert done.code == 0, done.text
    found = done.service()
    assert found["verdict"] == "ok"
    assert "kimi serves again" in found["message"]
    steps = [step["step"] for step in found["steps"]]
    assert steps[:4] == ["staged", "stopping", "waiting_gpus", "measuring"]
    assert steps[4:] == ["starting", "loading", "verifying", "verified", "measured"]
    assert invocation(host) != serving
    read = record.read((out / "gpu1/kimi/bench.json").read_text())
    assert read.rehearsal
    assert {timing.case for timing in read.timings} >= {"nothing set", "pcie-ll-ring", "pcie-throughput"}
    assert {timing.bytes for timing in read.timings} == {16, 32}
    (kept,) = host.root.glob("var/lib/servewright/kimi/measured/2x-*-pcie/*/bench.json")
    assert json.loads(kept.read_text()) == read.raw
    (entry, *_) = deployed.call("history", "kimi")["history"]
    assert (entry["command"], entry["reason"], entry["verdict"]) == ("nccl bench", "a look", "ok")
    assert (out / "gpu1/kimi/plot.svg").exists()


def test_tune_gives_a_table_and_a_profile_that_uses_it(host, declare, deployed, tmp_path):
    compiler = host.root / "usr/local/bin/cc"
    compiler.write_text('#!/bin/sh\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && cat > "$2"; shift; done\n')
    compiler.chmod(0o755)
    try:
        options = ("--stop", "--rehearsal", "--out", str(tmp_path), "--channels", "2", "--ablate", "pcie-ll-ring")
        held = kimi(nccl={"environment": {"NCCL_CUMEM_HOST_ENABLE": "0"}})
        command = [BIN / "servewright", "nccl", "tune", "kimi", "-i", declare(held), *QUICK, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    finally:
        compiler.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in every case, as declared: NCCL_CUMEM_HOST_ENABLE=0\n" in done.stdout
    (effects,) = [part for part in done.stdout.split("\n\n") if "against nothing set, and against pcie-ll-ring" in part]
    assert [line.split()[0] for line in effects.splitlines()[2:]] == sorted(built_in()["pcie-ll-ring"].settings)
    folder = tmp_path / "gpu1/kimi"
    (made,) = yaml.safe_load((folder / "profile.yml").read_text())["servewright_nccl_profiles"]
    settings = {name: setting.value for name, setting in Profile.model_validate(made).settings.items()}
    table = host.root / settings["NCCL_TUNER_CONFIG_FILE"].lstrip("/")
    assert table.read_text() == (folder / "tuned.csv").read_text()
    assert "allreduce,0," in table.read_text()
    assert (host.root / settings["NCCL_TUNER_PLUGIN"].lstrip("/")).read_text().startswith("/* NCCL tuner plugin")
    assert {"sweep.json", "finals.json", "verify.json", "outcome.json"} < {path.name for path in folder.iterdir()}
    assert deployed.status()["state"]["active"] == "active"


def test_without_a_compiler_tune_says_so_and_chooses_one_environment(host, declare, deployed, tmp_path):
    for plugin in host.root.glob("usr/local/lib/servewright/libservewright-tuner-*.so"):
        plugin.unlink()
    options = ("--stop", "--rehearsal", "--out", str(tmp_path), "--channels", "2", "--weight-prefill", "0")
    off = {"environment": {"NCCL_P2P_DISABLE": "1"}}
    without_p2p = kimi(nccl=off, options={"disable_custom_all_reduce": True})
    done = servewright("nccl", "tune", "kimi", "-i", declare(without_p2p), *QUICK, *options)
    assert done.code == 0, done.text
    assert "no C compiler is here" in done.service()["message"]
    assert done.service()["measured"]["outcome"]["how"].startswith("single: ")
    folder = tmp_path / "gpu1/kimi"
    (made,) = yaml.safe_load((folder / "profile.yml").read_text())["servewright_nccl_profiles"]
    assert "NCCL_TUNER_PLUGIN" not in made["settings"]
    # What does not work on a host is not tried there.
    cases = json.loads((folder / "sweep.json").read_text())["cases"]
    assert {case["effective"].get("NCCL_P2P_DISABLE") for case in cases} == {"1"}
    assert made["settings"]["NCCL_P2P_DISABLE"]["value"] == "1"


def test_a_hang_in_the_first_all_reduce_is_named_and_the_service_is_back(host, declare, deployed):
    hanging = kimi(environment={"FAKE_FAULT": "first hang"})
    done = servewright("nccl", "bench", "kimi", "-i", declare(hanging), *QUICK, "--stop", "--timeout", "3")
    assert done.code == 4, done.text
    found = done.service()
    assert found["verdict"] == "rolled_back"
    assert "first-collective-hang" in found["message"]
    assert "IOMMU" in found["message"]
    assert "kimi serves again" in found["message"]
    assert deployed.status()["state"]["active"] == "active"
    assert host.run("pgrep -f '[m]easure.pyz'", check=False).stdout == ""


@pytest.mark.parametrize("fault", ["kill the transaction", "cut the power"])
def test_the_service_is_back_whatever_ends_the_measurement(host, declare, deployed, fault):
    hanging = kimi(environment={"FAKE_FAULT": "first hang"})
    last = deployed.call("history", "kimi")["history"][0]["transaction"]
    arguments = ["nccl", "bench", "kimi", "-i", declare(hanging), *QUICK, "--stop"]
    controller = subprocess.Popen(
        [BIN / "servewright", *arguments], stdout=sys.stderr, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
    )
    try:
        deployed.wait_for_step("kimi", "measuring", after=last)
        controller.kill()
        if fault == "cut the power":
            host.power_cut()
            host.boot()
        else:
            unit = "servewright-transaction-kimi.service"
            host.run(f"kill -9 $(systemctl show {unit} -p MainPID --value)")
        deployed.wait_for_step("kimi", "restored", after=last, timeout=120)
    finally:
        controller.kill()
        controller.wait()
    assert deployed.status()["state"]["active"] == "active"
    assert deployed.call("verify", "kimi")["verdict"] == "ok"
    assert host.run("pgrep -f '[m]easure.pyz'", check=False).stdout == ""
