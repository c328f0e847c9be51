"""Preflight on a host on which a release serves: what would keep the next one from starting is refused, with the
repair, and what serves is not touched. Tests of a reported failure are named after its row in tests/failures.yml."""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess

import pytest

from tests.hosts.commands import BIN, Library, invocation, rendered, servewright
from tests.hosts.faults import release, small

MODEL = "/opt/simulator/model"
WITH_CONTEXT = {"path": MODEL, "served_name": "kimi-k2.5", "context_length": 131072}
TWO: dict = {"gpus": [0, 1], "parallelism": {"tensor": 2}, "options": {"disable_custom_all_reduce": True}}


@pytest.fixture(scope="module")
def serving(testbed, simulator):
    """A host on which `release()` serves, beside a vLLM `other` on port 25000 and GPU 7."""
    host = testbed.boot("preflight", prepare=simulator)
    library = Library(host)
    other = {"name": "other", "gpus": [7], "options": {}, "listen": {"port": 25000}}
    for declared in (release(), release(engine="vllm", **other)):
        result = library.deploy(declared)
        assert result["verdict"] == "committed", result
    yield library
    assert library.call("verify", "kimi")["verdict"] == "ok"  # whatever was refused
    testbed.destroy(host)


def look(library, declared=None, nccl=None, **changes):
    """The checks of a plan, and what came of it. A new description alone is a change, and asks no parser again."""
    declared = declared or rendered(small(**{"description": "changed", **changes}), nccl)
    before = invocation(library.host)
    (result,) = library.call("deploy", [declared], {}, True)
    assert invocation(library.host) == before
    return result


def findings(result, check, severity=None):
    """What a check found, without what it found right."""
    return [
        item["message"] + " -> " + item["repair"]
        for item in result["checks"]
        if item["id"] == check and not item["passed"] and severity in (None, item["severity"])
    ]


def refused(result, check):
    """The one fatal finding of a check, which refused the change."""
    assert result["verdict"] == "refused", result["checks"]
    (text,) = findings(result, check, "fatal")
    return text


@contextlib.contextmanager
def on(library, do, undo):
    """A condition of the host, taken back in any case."""
    library.host.run(do)
    try:
        yield
    finally:
        library.host.run(undo)


def smi(library, **misbehaviour):
    path = "/etc/simulator/nvidia-smi.json"
    return on(library, f"echo '{json.dumps(misbehaviour)}' > {path}", f"rm {path}")


def drop_in(library, lines):
    folder = "/etc/systemd/system/kimi.service.d"
    return on(library, f"mkdir {folder}; printf '[Service]\\n{lines}\\n' > {folder}/zz.conf", f"rm -r {folder}")


def program(library, name, text, folder="/usr/local/bin"):
    path = f"{folder}/{name}"
    return on(library, f"cat > {path} <<'END'\n#!/bin/sh\n{text}\nEND\nchmod 755 {path}", f"rm {path}")


def copied_model(library, change):
    """A copy of the model with a change, as the `model` of a declaration."""
    path = "/opt/copy"
    library.host.run(f"rm -rf {path}; cp -r {MODEL} {path}; cd {path}; {change}")
    return {"model": {"path": path, "served_name": "kimi-k2.5", "context_length": 131072}}


def test_nothing_is_wrong_with_a_good_host(serving):
    result = look(serving, options={"attention_backend": "flashinfer", "nccl_port": 30500})
    # A container grants fewer open files than a real host.
    wrong = [item for item in result["checks"] if not item["passed"] and item["id"] != "limits"]
    assert (result["verdict"], wrong) == ("changes", [])
    assert {"driver", "weights", "gpu_memory", "links", "command_line"} <= {item["id"] for item in result["checks"]}


@pytest.mark.failure("2.9")
def test_2_9_a_restart_limiter_that_never_trips(serving):
    lines = r"RestartSec=10\n[Unit]\nStartLimitIntervalSec=10\nStartLimitBurst=5"
    with drop_in(serving, lines):
        text = refused(look(serving), "restart_limit")
    assert "StartLimitIntervalSec=10 can never trip: 5 starts take at least 50 s" in text
    assert "kimi.service.d/zz.conf" in text


def test_what_systemd_says_of_the_unit(serving):
    """A key in the wrong section, which systemd would only log."""
    declared = release(description="changed")
    declared["unit"] = declared["unit"].replace("[Unit]\n", "[Unit]\nTimeoutStopSec=3\n", 1)
    text = refused(look(serving, declared), "unit")
    assert text.startswith("kimi.service:3: Unknown key")
    assert "'TimeoutStopSec'" in text


@pytest.mark.failure("2.11")
def test_2_11_nccl_ports_of_two_services(serving):
    (text,) = findings(look(serving, **TWO), "ports_of_others", "warning")
    assert "kimi picks its NCCL port at random between 22000 and 29999, where port 25000 of other lies" in text
    taken = look(serving, **{**TWO, "options": {**TWO["options"], "nccl_port": 25000}})
    assert "port 25000 (NCCL) is also the HTTP port of service other" in refused(taken, "ports_of_others")
    free = look(serving, **{**TWO, "options": {**TWO["options"], "nccl_port": 30500}})
    assert findings(free, "ports_of_others") == []


@pytest.mark.failure("2.13")
def test_2_13_driver_library_mismatch(serving):
    with smi(serving, mismatch=True):
        text = refused(look(serving), "driver")
    assert "Driver/library version mismatch" in text
    assert "hold the driver's packages" in text


GROUPS, BRIDGE = "/sys/kernel/iommu_groups", "/sys/bus/pci/devices/0000:00:01.1"


def iommu(library, kind):
    make = f"mkdir -p {GROUPS}/1 && echo {kind} > {GROUPS}/1/type"
    return on(library, f"mount -t tmpfs none {GROUPS} && {make}", f"umount {GROUPS}")


@contextlib.contextmanager
def bridge(library, control):
    """A PCI bridge whose access control can redirect, with this control register."""
    space = bytearray(4096)
    struct.pack_into("<IHH", space, 0x100, 0x0001000D, 0x5F, control)
    (library.host.root / "root/config").write_bytes(space)
    make = f"mkdir {BRIDGE}; echo 0x060400 > {BRIDGE}/class; cp /root/config {BRIDGE}/"
    with on(library, f"mount -t tmpfs none /sys/bus/pci/devices; {make}", "umount /sys/bus/pci/devices"):
        yield


@pytest.mark.failure("3.1")
def test_3_1_iommu_and_acs_between_pcie_gpus(serving):
    with bridge(serving, 0x1D), iommu(serving, "DMA-FQ"):
        text = refused(look(serving, **TWO), "peer_to_peer")
        off = look(serving, **TWO, nccl={"NCCL_P2P_DISABLE": "1"})
        with smi(serving, link="NV18"):
            linked = look(serving, **TWO)
    assert "the IOMMU translates and 1 PCIe bridges redirect (ACS, 0000:00:01.1)" in text
    assert "iommu=pt" in text
    assert (findings(off, "peer_to_peer"), findings(linked, "peer_to_peer")) == ([], [])
    with bridge(serving, 0x1D), iommu(serving, "identity"):
        (text,) = findings(look(serving, **TWO), "peer_to_peer", "warning")
    assert "redirect P2P traffic" in text


def test_acs_that_was_cleared_by_hand_comes_back_at_the_next_boot(serving):
    with bridge(serving, 0), iommu(serving, "identity"):
        (text,) = findings(look(serving, **TWO), "peer_to_peer", "warning")
        with on(serving, "echo pci=disable_acs_redir=pci:1022:14ab > /root/c; mount --bind /root/c /proc/cmdline",
                "umount /proc/cmdline"):  # fmt: skip
            kept = look(serving, **TWO)
    assert "the next boot turns it on again" in text
    assert findings(kept, "peer_to_peer") == []


@pytest.mark.failure("5.4")
def test_5_4_a_draft_model_with_a_short_context(serving):
    copied_model(serving, "sed -i 's/262144/2048/' config.json")
    said = look(serving, extra_args={"speculative-draft-model-path": "/opt/copy"}, model=WITH_CONTEXT)
    assert "the draft model was made for 2048 tokens, the context is 131072" in findings(said, "context", "warning")[0]


@pytest.mark.failure("6.9")
def test_6_9_hardening_that_hides_the_gpus(serving):
    with drop_in(serving, "PrivateDevices=yes"):
        assert "sets PrivateDevices=yes, which hides the GPUs" in refused(look(serving), "drop_ins")
    with drop_in(serving, "MemoryDenyWriteExecute=true"):
        assert "forbids the code" in refused(look(serving), "drop_ins")


@pytest.mark.failure("6.11")
def test_6_11_a_unit_that_systemd_has_not_read_again(serving):
    serving.host.run("sleep 1; touch /etc/systemd/system/kimi.service")
    assert serving.host.run("systemctl show kimi -p NeedDaemonReload --value").stdout == "yes\n"
    before = invocation(serving.host)
    result = serving.deploy(release())
    assert (result["verdict"], invocation(serving.host)) == ("committed", before)
    assert serving.host.run("systemctl show kimi -p NeedDaemonReload --value").stdout == "no\n"


@pytest.mark.failure("6.13")
def test_6_13_gpus_that_come_later_than_the_service(serving):
    nobody = "--service late --user nobody --address 127.0.0.1 --port 39999"
    wait = f"/usr/bin/python3 -I /usr/local/lib/servewright/host.pyz before-start {nobody} --gpus 6 --timeout"
    with smi(serving, hide=[6]):
        late = serving.host.run(f"(sleep 2; rm /etc/simulator/nvidia-smi.json) & {wait} 30")
        assert "GPU 6 is not there: nvidia-smi lists 0, 1, 2, 3, 4, 5, 7" in late.stdout
        serving.host.run("echo '{\"hide\": [6]}' > /etc/simulator/nvidia-smi.json")
        never = serving.host.run(f"{wait} 1", check=False)
    assert never.returncode == 1
    assert "GPU 6 is not there" in never.stderr


@pytest.fixture
def compiling(serving):
    """An environment with packages that compile at run time, beside the one that serves."""
    venv = "/opt/servewright/engines/compiling"
    packages = f"{venv}/lib/python3.11/site-packages"
    serving.host.run(f"cp -r /opt/servewright/engines/sglang-0.5.23 {venv}")

    def declare(*distributions):
        serving.host.run(f"rm -rf {packages}/*-1.dist-info")
        for name in distributions:
            serving.host.run(f"mkdir {packages}/{name}-1.dist-info")
        return look(serving, venv=venv)

    yield declare
    serving.host.run(f"rm -r {venv}")


@pytest.mark.failure("6.14", "6.15")
def test_6_14_and_6_15_ninja_and_nvcc(serving, compiling):
    result = compiling("flashinfer_python")
    assert result["verdict"] == "refused"
    said = findings(result, "toolchain", "fatal")
    assert [text.partition(" -> ")[0].rpartition(" ")[2] for text in said] == ["c++", "ninja", "nvcc"]
    assert "/opt/servewright/engines/compiling/bin is on the unit's PATH" in said[1]
    assert findings(compiling("flashinfer_python", "flashinfer_jit_cache"), "toolchain") == []
    # In the environment's own folder, which is on the unit's PATH and on nobody else's.
    folder = "/opt/servewright/engines/compiling/bin"
    with contextlib.ExitStack() as stack:
        for name in ("ninja", "c++", "nvcc"):
            stack.enter_context(program(serving, name, "exit 0", folder))
        assert findings(compiling("flashinfer_python"), "toolchain") == []


@pytest.mark.failure("6.17")
def test_6_17_python_h(serving, compiling):
    missing = "echo 't.c:1:10: fatal error: Python.h: No such file or directory'; exit 1"
    assert "no C compiler" in refused(compiling("triton"), "toolchain")
    with program(serving, "gcc", missing):
        text = refused(compiling("triton"), "toolchain")
    assert "cannot compile two lines: t.c:1:10: fatal error: Python.h: No such file or directory" in text
    assert "python3-dev" in text


@pytest.mark.failure("6.18")
def test_6_18_cache_folders_that_cannot_be_written(serving):
    cache = release()["cache"]
    with on(serving, f"mkdir -m 700 {cache}/triton", f"rmdir {cache}/triton"):
        text = refused(look(serving), "caches")
    assert f"user llm-kimi cannot write to {cache}/triton" in text
    text = refused(look(serving, environment={"TRITON_CACHE_DIR": "/models/triton"}), "caches")
    assert "TRITON_CACHE_DIR=/models/triton cannot be written in the unit" in text
    home = serving.host.run("getent passwd llm-kimi").stdout.split(":")[5]
    assert (home, findings(look(serving), "caches")) == ("/nonexistent", [])


@pytest.mark.failure("6.21")
def test_6_21_a_unit_without_the_limit_of_locked_memory(serving):
    declared = release(description="changed")
    declared["unit"] = declared["unit"].replace("LimitMEMLOCK=infinity\n", "")
    assert "LimitMEMLOCK=infinity" in refused(look(serving, declared), "limits")


@pytest.mark.failure("7.1")
def test_7_1_a_model_that_does_not_fit_on_the_disk(serving):
    grow = "sed -i 's/\"total_size\": [0-9]*/\"total_size\": 99999999999999/' model.safetensors.index.json"
    model = copied_model(serving, f"rm model-00002-of-00002.safetensors; {grow}")
    text = refused(look(serving, **model), "weights")
    assert "lacks 1 of 2 weight files: model-00002-of-00002.safetensors" in text
    assert "93132.3 GiB are missing, and only" in text


@pytest.mark.failure("7.3")
def test_7_3_a_repository_instead_of_a_folder(serving):
    text = refused(look(serving, extra_args={"speculative-draft-model-path": "some/draft"}), "repositories")
    assert "the draft model is repository some/draft" in text
    assert "HF_HUB_OFFLINE keeps it away" in text


@pytest.mark.failure("7.4")
def test_7_4_a_gated_repository_without_a_token(serving):
    draft = {"extra_args": {"speculative-draft-model-path": "some/draft"}, "environment": {"HF_HUB_OFFLINE": "0"}}
    said = findings(look(serving, **draft), "repositories", "warning")
    assert "declare HF_TOKEN under secrets" in said[1]
    named = look(serving, **draft, secrets={"HF_TOKEN": {"file": "/etc/hostname"}})
    assert len(findings(named, "repositories", "warning")) == 1


@pytest.mark.failure("7.7")
def test_7_7_caches_last_from_start_to_start(serving):
    mark = f"{release()['cache']}/kernels"
    serving.host.run(f"touch {mark}; systemctl restart kimi")
    assert serving.deploy(release())["verdict"] in ("unchanged", "committed")
    serving.host.run(f"rm {mark}")


SHARD = "model-00001-of-00002.safetensors"
WEIGHTS = [
    (f"truncate -s 20 {SHARD}", f"/opt/copy/{SHARD} is cut short or damaged"),
    (f"truncate -s +1 {SHARD}", "its header says"),
    (f"printf 'version https://git-lfs.github.com/spec/v1\\n' > {SHARD}", "is a Git LFS pointer"),
    (f"chmod 600 {SHARD}", f"user llm-kimi cannot read /opt/copy/{SHARD}"),
    ("rm *.safetensors*", "/opt/copy has no weights"),
    ("echo '{' > model.safetensors.index.json", "model.safetensors.index.json cannot be read"),
]


@pytest.mark.parametrize(("change", "message"), WEIGHTS)
def test_weights_that_are_not_whole(serving, change, message):
    assert message in refused(look(serving, **copied_model(serving, change)), "weights")


def test_dummy_weights_need_no_files(serving):
    model = copied_model(serving, "rm *.safetensors*")
    options = {"load_format": "dummy", "attention_backend": "flashinfer"}
    assert look(serving, **model, options=options)["verdict"] == "changes"


def test_a_model_without_a_tokenizer(serving):
    model = copied_model(serving, "rm tokenizer.json")
    assert "has no tokenizer (tokenizer.json" in refused(look(serving, **model), "tokenizer")
    model = copied_model(serving, "mv tokenizer.json tokenization_own.py")
    assert "only code for one" in findings(look(serving, **model), "tokenizer", "warning")[0]


def test_a_context_longer_than_the_models(serving):
    model = {"path": MODEL, "served_name": "kimi-k2.5", "context_length": 300000}
    text = refused(look(serving, model=model), "context")
    assert "model.context_length is 300000, the model's config.json allows 262144 -> declare at most 262144" in text
    allowed = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}
    assert look(serving, model=model, environment=allowed)["verdict"] == "changes"


BIG = """python3 - <<'END'
import json, struct
size = {0} << 30
text = json.dumps({{"w": {{"dtype": "I8", "shape": [size], "data_offsets": [0, size]}}}}).encode()
with open("model-00001-of-00002.safetensors", "wb") as stream:
    stream.write(struct.pack("<Q", len(text)) + text)
    stream.truncate(8 + len(text) + size)
END"""


@pytest.mark.parametrize(("gib", "severity", "message"), [
    (120, "fatal", "about 120.0 GiB of weights on each GPU of 95.6 GiB -> claim more GPUs"),
    (90, "warning", "the fraction 0.88 of it leaves nothing for the KV cache"),
    (80, "warning", "one context is 131072"),
])  # fmt: skip
def test_weights_that_do_not_fit_on_the_gpu(serving, gib, severity, message):
    (text,) = findings(look(serving, **copied_model(serving, BIG.format(gib))), "gpu_memory", severity)
    assert message in text


def test_a_gpu_that_fell_off_the_bus(serving):
    with smi(serving, lost=3):
        assert "reboot the host, then look at its seat and power" in refused(look(serving), "driver")
    declared = release(description="changed")
    declared["host"] = {"gpus": 8, "gpu_model": "NVIDIA H200", "compute_capability": "12.0"}
    with smi(serving, hide=[5]):
        said = findings(look(serving, declared), "gpus_declared", "fatal")
    assert "nvidia-smi lists 7 GPUs, servewright_host declares 8" in said[0]
    assert "servewright_host.gpu_model declares 'NVIDIA H200'" in said[1]
    assert len(said) == 2


def test_preflight_and_doctor_by_the_command_line(serving, inventory):
    """Of what serves unchanged, too: they show every check, and end with 0 or 3."""

    def path(**facts):
        variables = {"servewright_services": [small()], "servewright_host": {"gpus": 8, **facts}}
        return str(inventory([serving.host], variables=variables))

    before = invocation(serving.host)
    good = servewright("preflight", "-i", path())
    checks = good.service(serving.host.name)["checks"]
    assert (good.code, [check["id"] for check in checks if check["severity"] == "fatal"]) == (0, []), good.text
    assert len(checks) > 30
    bad = servewright("doctor", "-i", path(gpu_model="NVIDIA H200"))
    assert bad.code == 3, bad.text
    shown = subprocess.run(
        [BIN / "servewright", "doctor", "-i", path(gpus=4)], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 3
    rows = {line.split()[1]: line.split() for line in shown.stdout.splitlines() if len(line.split()) > 1}
    assert (rows["gpus_declared"][0], rows["driver"][0], rows["limits"][0]) == ("FATAL", "ok", "warning"), shown.stdout
    assert "nvidia-smi lists 8 GPUs, servewright_host declares 4" in shown.stdout
    assert invocation(serving.host) == before


def test_a_gpu_in_bad_health_is_a_warning(serving):
    fields = {
        "ecc.errors.uncorrected.volatile.total": "2",
        "persistence_mode": "Disabled",
        "pcie.link.width.current": "8",
    }
    with smi(serving, fields={"0": fields, "1": fields}):
        result = look(serving)
    said = findings(result, "gpu_health", "warning")
    assert (result["verdict"], len(said)) == ("changes", 3)
    assert "GPU 0 runs with 8 of 16 PCIe lanes" in said[1]


def test_a_corrupted_inforom_is_a_warning_and_the_service_can_start(serving):
    before_start = (
        "/usr/bin/python3 -I /usr/local/lib/servewright/host.pyz before-start --service late --user nobody "
        "--address 127.0.0.1 --port 39999 --gpus 6 --timeout 1"
    )
    with smi(serving, inforom=0):
        result = look(serving)
        serving.host.run(before_start)
    assert result["verdict"] == "changes"
    (text,) = findings(result, "gpu_health", "warning")
    assert "GPU 0: nvidia-smi says 'WARNING: infoROM is corrupted at gpu 0000:01:00.0'" in text
    assert (findings(result, "driver"), findings(result, "gpus")) == ([], [])


XIDS = """case "$*" in *-k*) cat <<'TEXT'
NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:01:00): 31, pid=3134, name=python, Ch 00000008, MMU Fault: ENGINE GRAPHICS
NVRM: Xid (PCI:0000:71:00): 95, pid=3134, name=python, Uncontained: FBHUB (0x1). RST: Yes, D-RST: No
TEXT
;; *) exec /usr/bin/journalctl "$@" ;; esac"""


def test_errors_of_a_gpu_in_the_kernel_log(serving):
    with program(serving, "journalctl", XIDS):
        said = findings(look(serving), "gpu_errors", "warning")
    assert [text.partition(" times")[0] for text in said] == ["GPU 0 had Xid 79 (GPU has fallen off the bus) 1"]


def test_a_foreign_process_on_a_claimed_gpu(serving):
    held = "echo '{\"0\": 4000}' > /run/simulator/gpu/$(systemctl show cron-like -p MainPID --value)"
    start = f"systemd-run -q --unit cron-like sleep 999; {held}"
    with on(serving, start, "systemctl stop cron-like; rm -f /run/simulator/gpu/*"):
        text = refused(look(serving), "gpus")
    assert "GPU 0 is held by pid" in text
    assert "with 4000 MiB" in text
    assert "systemctl disable --now cron-like.service" in text


def test_links_that_are_not_as_declared(serving):
    declared = release(**{"description": "changed", **TWO})
    declared["host"] = {"interconnect": "nvlink"}
    text = refused(look(serving, declared), "links")
    assert "GPUs 0 and 1 are linked by NODE, servewright_host declares nvlink" in text
    with smi(serving, link="NV18"):
        (seen,) = [item for item in look(serving, declared)["checks"] if item["id"] == "links"]
    assert (seen["passed"], seen["evidence"]) == (True, {"links": ["NV18"], "p2p": ["OK"]})


@pytest.mark.failure("1.7")
def test_1_7_a_dev_shm_too_small_for_the_channels_of_nccl(serving):
    eight = {"gpus": list(range(7)), "parallelism": {"tensor": 7}}
    with on(serving, "mount -o remount,size=64M /dev/shm", "mount -o remount,size=50% /dev/shm"):
        text = refused(look(serving, **eight), "shared_memory")
    assert "of 64 MiB free, this needs about 321 MiB" in text
    assert "remount,size=642M" in text


def test_interfaces_that_are_not_there_or_down(serving):
    def of(value):
        return look(serving, nccl={"NCCL_SOCKET_IFNAME": value})

    assert "NCCL_SOCKET_IFNAME=ib0 names no interface" in refused(of("ib0"), "interfaces")
    with on(serving, "ip link add ether7 type veth peer name other7", "ip link del ether7"):
        assert "ether7 is down -> ip link set ether7 up" in refused(of("ether"), "interfaces")
    assert [findings(of(value), "interfaces") for value in ("lo", "^docker", "=lo")] == [[], [], []]


def test_a_login_user_whose_shared_memory_logind_would_delete(serving):
    serving.host.run("useradd -m person")
    text = refused(look(serving, user="person"), "user")
    assert "user person (1000) is a login user" in text
    conf = "/etc/systemd/logind.conf.d"
    with on(serving, f"mkdir -p {conf}; printf '[Login]\\nRemoveIPC=no\\n' > {conf}/x.conf", f"rm -r {conf}"):
        assert findings(look(serving, user="person"), "user") == []
