"""Parts of drift that need no host: windows, drop-ins, ACS, NCCL's files, digests, metrics."""

from __future__ import annotations

import datetime
import os
import re
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import drift, drop_ins, files, releases, truth
from ansible_collections.servewright.llm.plugins.module_utils.host.drift import finding, metrics, window
from ansible_collections.servewright.llm.plugins.module_utils.host.metrics import text
from ansible_collections.servewright.llm.plugins.module_utils.host.surroundings import (
    control_group,
    engine,
    host,
    model,
    nccl_conf,
    pci,
    rights,
)
from tests.hosts.mutations import TABLE
from tests.unit.host.test_releases import rendered

MONDAY = datetime.datetime(2026, 11, 30)


@pytest.mark.parametrize(
    ("text", "day", "time", "is_open"),
    [
        ("Mon 03:00-05:00", 0, "03:00", True),
        ("Mon 03:00-05:00", 0, "04:59", True),
        ("Mon 03:00-05:00", 0, "05:00", False),
        ("Mon 03:00-05:00", 1, "03:30", False),
        ("Sun 23:00-01:00", 6, "23:30", True),
        ("Sun 23:00-01:00", 0, "00:30", True),
        ("Sun 23:00-01:00", 0, "01:00", False),
        ("Sun 23:00-01:00", 6, "00:30", False),
        ("daily 23:30-00:30", 3, "00:10", True),
        ("daily 23:30-00:30", 3, "12:00", False),
        ("daily 00:00-00:00", 3, "12:00", True),
    ],
)
def test_a_window_is_open(text, day, time, is_open):
    now = MONDAY + datetime.timedelta(days=day, hours=int(time[:2]), minutes=int(time[3:]))
    assert window.is_open([text], now) == is_open
    assert not window.is_open([], now)


def test_a_service_that_was_never_committed_is_healthy_and_an_unknown_one_is_not(root, monkeypatch):
    monkeypatch.setattr(drift.lock, "holder", lambda service: None)
    releases.stage(rendered(), "")
    assert drift.look("tiny")["verdict"] == "ok"
    unknown = drift.look("tinny")
    assert (unknown["verdict"], unknown["message"]) == ("error", "there is no service tinny; there are: tiny")
    releases.activate("tiny", 1)  # it was committed, and the record of that is lost
    (lost,) = drift.look("tiny")["findings"]
    assert (lost["id"], lost["service"], lost["mended_by"]) == ("release.damaged", "tiny", "person")


@pytest.mark.parametrize(
    ("active", "sub", "restarts", "job", "found"),
    [
        ("active", "running", 3, "", []),
        ("activating", "start-pre", 0, "start", []),  # somebody starts it
        ("activating", "start-pre", 1, "start", ["service.restarting"]),
        ("activating", "auto-restart", 0, "", ["service.restarting"]),
        ("deactivating", "stop-sigterm", 1, "stop", []),
        ("deactivating", "stop-sigterm", 0, "restart", []),
        ("deactivating", "stop-post", 0, "start", ["service.restarting"]),  # a check before its start failed
        ("deactivating", "stop-post", 2, "", ["service.restarting"]),
        ("failed", "failed", 2, "", ["service.down"]),
        ("inactive", "dead", 0, "", ["service.down"]),
        ("inactive", "dead", 0, "start", []),  # a boot that waits for the network
        ("failed", "failed", 2, "restart", []),
        ("inactive", "dead", 0, "stop", ["service.down"]),
    ],
)
def test_a_service_that_ends_by_itself_is_told_from_one_that_is_started_or_stopped(
    monkeypatch, active, sub, restarts, job, found
):
    jobs = f"91 kimi.service {job} running\n" if job else ""
    monkeypatch.setattr(drift.subject.systemd, "run", lambda argv: SimpleNamespace(stdout=jobs))
    monkeypatch.setattr(drift.state.systemd, "log", lambda unit, lines: [])
    subject = object.__new__(drift.subject.Subject)
    subject.service, subject.unit = "kimi", "kimi.service"
    subject.state = {
        "ActiveState": active,
        "SubState": sub,
        "NRestarts": restarts,
        "ExecMainCode": 1,
        "ExecMainStatus": 1,
        "Result": "exit-code",
    }
    told = list(drift.state.find(subject))
    assert [one["id"] for one in told] == found
    subject.state["ExecMainCode"] = 0
    again = [one["message"] for one in drift.state.find(subject)]
    if found == ["service.down"]:
        assert told[0]["message"] == f"kimi is down: {active}, exit code 1 (exit-code)"
        assert again == [f"kimi is down: {active} (exit-code)"]


@pytest.mark.parametrize(
    ("old", "new", "evidence", "mended_by"),
    [
        ({}, {"A": "1"}, "A: new", "undo"),
        ({"LANG": "1"}, {"LANG": "2"}, "LANG: changed", "restart"),  # the old value is not known
        ({"LANG": "1"}, {}, "LANG: gone", "restart"),
    ],
)
def test_a_variable_of_the_manager_is_taken_away_only_when_it_is_new(old, new, evidence, mended_by):
    subject = SimpleNamespace(release={"environment": {"OURS": "1"}})
    (found,) = drift.host._manager(subject, {**old, "OURS": "1"}, new)
    assert (found["evidence"], found["mended_by"]) == ([evidence], mended_by)


def test_of_drop_ins_the_last_name_wins_and_lists_add_up():
    lines = drop_ins.winning(
        [
            ("/etc/d/a.conf", "[Service]\nRestart=no\nEnvironment=A=1\nEnvironment=B=1\nExecStartPre=/a\n"),
            ("/usr/lib/d/a.conf", "[Service]\nRestart=hidden by the file of that name in /etc\n"),
            (
                "/usr/lib/d/zz.conf",
                "[Service]\n# Restart=always\nRestart=\\\n on-failure\nEnvironment=A=2\nExecStartPre=/b\n",
            ),
        ]
    )
    assert lines == [
        ("/usr/lib/d/zz.conf", 5, "Environment=A=2"),
        ("/etc/d/a.conf", 4, "Environment=B=1"),
        ("/etc/d/a.conf", 5, "ExecStartPre=/a"),
        ("/usr/lib/d/zz.conf", 3, "Restart=on-failure"),
        ("/usr/lib/d/zz.conf", 6, "ExecStartPre=/b"),
    ]
    reset = [("/a.conf", "[Service]\nExecStart=/a\n"), ("/b.conf", "[Service]\nExecStart=\nExecStart=/b\n")]
    assert ("/a.conf", 2, "ExecStart=/a") not in drop_ins.winning(reset)


@pytest.mark.parametrize(
    ("path", "applies"),
    [
        ("/etc/systemd/system/service.d/a.conf", True),
        ("/etc/systemd/system/kimi-k2.service.d/a.conf", True),
        ("/etc/systemd/system/kimi-.service.d/a.conf", True),
        ("/etc/systemd/system/qwen-.service.d/a.conf", False),
    ],
)
def test_a_drop_in_for_many_applies_by_the_name_of_its_folder(path, applies):
    assert drop_ins.applies(path, "kimi-k2.service") == applies


def test_acs_is_found_behind_other_capabilities():
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)  # AER, next at 0x148
    struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x7F, 0x1D)
    assert pci.registers(bytes(space)) == (0x7F, 0x1D)
    assert pci.registers(bytes(space[:256])) is None  # what a reader without the right to more gets
    struct.pack_into("<I", space, 0x148, 0x0002 | 1 << 16 | 0x100 << 20)  # a ring of capabilities ends, too
    assert pci.registers(bytes(space)) is None


def test_nccl_takes_from_files_what_the_environment_leaves_open(tmp_path, monkeypatch):
    own, system = tmp_path / "own.conf", tmp_path / "nccl.conf"
    own.write_text("# NCCL_A=0\nNCCL_ALGO=Tree\nNCCL_P2P_LEVEL=NVL\n")
    system.write_text("NCCL_ALGO=Ring\nNCCL_PROTO=LL\nnot a setting\n")
    monkeypatch.setattr(nccl_conf, "SYSTEM", str(system))
    release = {"environment": {"NCCL_CONF_FILE": str(own), "NCCL_P2P_LEVEL": "SYS"}, "user": "nobody"}
    assert nccl_conf.values(release) == {"NCCL_ALGO": ["Tree", str(own)], "NCCL_PROTO": ["LL", str(system)]}


@pytest.fixture
def venv(tmp_path):
    packages = tmp_path / "lib/python3.12/site-packages"
    for path in ("vllm/a.py", "nvidia/nccl/lib/libnccl.so.2", "six.py"):
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).write_text("1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").write_text("version = 3.12.1")
    return tmp_path


def changed_files(venv, change, recorded=lambda facts: None):
    """What drift says of an engine's files after a change; `recorded` changes what was recorded before it."""
    facts = {"model": {}, "nccl_conf": {}}
    old = {**facts, **engine.files_of(str(venv))}
    recorded(old)
    change(venv / "lib/python3.12/site-packages")
    subject = SimpleNamespace(
        recorded={"files": old},
        files={**facts, **engine.files_of(str(venv))},
        release={"model": {"path": str(venv)}, "venv": str(venv)},
    )
    return {one["id"]: [os.path.basename(line) for line in one["evidence"]] for one in drift.files.find(subject)}


def byte_code(packages):
    for folder in (packages, packages / "vllm"):
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__/a.pyc").write_text("1")


def another_nccl(packages):
    (packages / "vllm/libnccl.so.2").write_text("2")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (byte_code, {}),
        (lambda packages: os.utime(packages / "vllm/a.py", ns=(0, 0)), {"engine.files": ["vllm (changed)"]}),
        (lambda packages: os.utime(packages / "six.py", ns=(0, 0)), {"engine.files": ["six.py (changed)"]}),
        (lambda packages: (packages / "six.py").unlink(), {"engine.files": ["six.py (gone)"]}),
        (lambda packages: (packages / "evil.pth").touch(), {"engine.files": ["evil.pth (new)"]}),
        (
            lambda packages: (packages.parents[2] / "pyvenv.cfg").write_text("version = 3.12.10"),
            {"engine.files": ["pyvenv.cfg (changed)"]},
        ),
        (
            lambda packages: (packages / "nvidia/nccl/lib/libnccl.so.2").write_text("2"),
            {"engine.nccl": ["libnccl.so.2 (changed)"]},
        ),
        (another_nccl, {"engine.nccl": ["libnccl.so.2 (new)"]}),
    ],
)
def test_an_engine_changes_with_its_files_and_not_with_byte_code(venv, change, found):
    assert changed_files(venv, change) == found


def test_what_an_earlier_version_did_not_record_of_an_engine_is_not_new(venv):
    def change(packages):
        (packages / "evil.pth").touch()
        another_nccl(packages)

    assert changed_files(venv, change, lambda facts: facts.pop("single")) == {}


def test_a_libnccl_from_outside_of_the_environment_is_known_by_what_maps_it(venv, tmp_path, monkeypatch):
    inside, outside = str(venv / "lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"), tmp_path / "libnccl.so.2"
    outside.write_text("1")
    mappings = [SimpleNamespace(path=path) for path in (inside, str(outside), "/usr/lib/libnccl-net.so")]
    monkeypatch.setattr(engine.proc, "mapped", lambda pid: mappings)

    def recorded(facts):
        foreign = engine.foreign_nccl([1], facts["nccl"])
        assert set(foreign) == {str(outside)}
        facts["nccl"].update(foreign)

    assert changed_files(venv, lambda packages: None, recorded) == {}
    assert changed_files(venv, lambda packages: outside.write_text("2"), recorded) == {
        "engine.nccl": ["libnccl.so.2 (changed)"]
    }
    assert changed_files(venv, lambda packages: outside.unlink(), recorded) == {"engine.nccl": ["libnccl.so.2 (gone)"]}


def test_a_model_is_known_by_its_files_also_under_names_that_are_no_text(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "a.safetensors").symlink_to("elsewhere")
    with open(os.fsencode(tmp_path) + b"/\xff.bin", "wb"):
        pass
    found = model.files_of(str(tmp_path))
    assert set(found) == {"config.json", "a.safetensors", "\\udcff.bin"}
    assert found["a.safetensors"] is None
    assert files.seal(found)

    before = (tmp_path / "config.json").stat()
    (tmp_path / "config.json").write_text("[]")
    os.utime(tmp_path / "config.json", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert model.files_of(str(tmp_path))["config.json"] != found["config.json"]


def test_the_kernel_s_image_is_no_parameter():
    text = "BOOT_IMAGE=/vmlinuz-6.1.0-30 root=UUID=1 iommu=pt initrd=\\initrd.img ostree=/ostree/boot.1/a/0\n"
    assert host.command_line(text) == ["root=UUID=1", "iommu=pt"]


@pytest.mark.parametrize(
    ("recorded", "listens", "differing"),
    [
        ({"nofile": -1, "memlock": -1}, True, {"limits": ["limits.memlock", "limits.nofile"]}),
        ({"nofile": -1}, False, {}),  # it loads, and may have changed its own limits by the end of that
        ({}, True, {}),
        ({"cpus": "elsewhere"}, True, {"limits": ["limits.cpus"]}),
    ],
)
def test_what_was_recorded_of_a_process_is_compared_once_it_listens(monkeypatch, recorded, listens, differing):
    process = drift.process
    monkeypatch.setattr(process.ports, "holders", lambda host, port: [os.getpid()] if listens else [])
    monkeypatch.setattr(process.systemd, "pids", lambda group: [os.getpid()])
    subject = SimpleNamespace(
        pid=os.getpid(),
        recorded={"process": {"limits": recorded}},  # an earlier version recorded no user
        release={"listen": {"host": "::", "port": 1}},
        state={"ControlGroup": "/g"},
    )
    found = process._recorded(subject)
    assert {kind: [field["field"] for field in fields] for kind, fields in found.items()} == differing


def test_a_process_that_ends_has_no_rights(monkeypatch):
    child = subprocess.Popen(["true"])
    child.wait()
    nothing = {"limits": {}, "user": {}}
    assert rights.of(child.pid) == nothing
    monkeypatch.setattr(rights.proc, "limits", lambda pid: {})  # it ended between opening the file and reading it
    assert rights.of(os.getpid()) == nothing


def test_processors_that_the_control_group_lost_are_told_once(monkeypatch):
    process, path = drift.process, f"{V2}/cpuset.cpus"
    monkeypatch.setattr(process.ports, "holders", lambda host, port: [1])
    monkeypatch.setattr(process.systemd, "pids", lambda group: [1])
    monkeypatch.setattr(process.surroundings.rights, "of", lambda pid: {"limits": {"cpus": "0-3"}, "user": {}})
    monkeypatch.setattr(process.surroundings.control_group, "limits", lambda group: {path: "0-3"})
    for before, kinds in (({path: "0-7"}, []), ({path: "0-3"}, ["limits"])):
        recorded = {"limits": {"cpus": "default"}, "control_group": before}
        release = {"listen": {"host": "::", "port": 1}}
        subject = SimpleNamespace(
            pid=1, recorded={"process": recorded}, release=release, state={"ControlGroup": "/system.slice"}
        )
        assert list(process._recorded(subject)) == kinds


@pytest.mark.parametrize(
    ("limit", "manager", "found"),
    [
        ("unlimited", "unlimited", False),
        (65536, "unlimited", True),
        (65536, 1 << 36, True),
        (65536, 65536, False),  # systemd has no right to raise it
    ],
)
def test_memory_that_may_be_locked_is_compared_in_every_process(monkeypatch, limit, manager, found):
    limits = {1: {"nofile": 1 << 20, "memlock.hard": manager}, 2: {"nofile": 1 << 20, "memlock": limit}}
    monkeypatch.setattr(truth.proc, "limits", limits.get)
    monkeypatch.setattr(truth.proc, "uid", lambda pid: None)
    assert [field["running"] for field in truth._rights(rendered(), 2)] == ([limit] if found else [])


HOST = {
    "command_line": ["quiet", "iommu=pt", "hugepages=2", "hugepages=2"],
    "driver": {"module": "580", "library": "580"},
    "iommu": {"groups": True, "types": ["identity"]},
    "acs": {"0000:40:01.1": 0},
    "sysctl": {"vm.swappiness": "60"},
    "logind": {},
    "manager_environment": {},
}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({}, {"command_line": ["iommu=pt", "hugepages=2", "quiet", "hugepages=2"]}, []),
        ({}, {"command_line": ["quiet", "iommu=pt", "hugepages=2"]}, ["gone: hugepages=2"]),
        ({"command_line": [*HOST["command_line"], "ostree=/ostree/boot.1/a/0"]}, {}, []),  # by an earlier version
        ({"iommu": {"groups": 61, "types": ["identity"]}}, {}, []),  # the same
        ({"iommu": {"groups": 0, "types": []}}, {}, ["groups: False -> True", "types: [] -> ['identity']"]),
        ({}, {"iommu": {"groups": True, "types": ["DMA"]}}, ["types: ['identity'] -> ['DMA']"]),
        ({}, {"acs": {"0000:40:01.1": 0, "0000:80:01.1": 4}}, []),
        ({}, {"acs": {}}, []),
        ({}, {"acs": {"0000:40:01.1": 4}}, ["0000:40:01.1: 0x0000 -> 0x0004"]),
        ({"sysctl": {"vm.swappiness": "60", "kernel.threads-max": "4125283"}}, {}, []),  # by an earlier version
        ({}, {"sysctl": {"vm.swappiness": "60", "vm.new": "1"}}, []),
        ({}, {"sysctl": {"vm.swappiness": "1"}}, ["vm.swappiness: 60 -> 1"]),
    ],
)
def test_a_host_differs_in_what_a_boot_does_not_change_by_itself(before, after, found):
    subject = SimpleNamespace(recorded={"host": {**HOST, **before}}, host=SimpleNamespace(host={**HOST, **after}))
    assert [line for one in drift.host.find(subject) for line in one["evidence"]] == found


V2, CPUSET = "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/cpuset/system.slice"


@pytest.mark.parametrize(
    ("old", "new", "differ"),
    [
        ({"memory.max": "max", "cpu.max": "max 100000"}, {"memory.max": "4096"}, "memory.max"),
        ({"pids.max": "100"}, {}, "pids.max"),
        ({}, {"cpuset.cpus": "0-3"}, "cpuset.cpus"),  # the controller was not in use
        ({"cpuset.cpus": ""}, {}, ""),
        ({"cpuset.cpus": "0-7"}, {"cpuset.cpus": "0-3"}, "cpuset.cpus"),
        ({"cpu.weight": "100"}, {"cpu.weight": "50"}, "cpu.weight"),
        ({}, {"cpu.weight": "50"}, ""),  # an earlier version recorded none
    ],
)
def test_a_group_without_a_file_is_not_limited(old, new, differ):
    old, new = ({f"{V2}/{name}": text for name, text in every.items()} for every in (old, new))
    assert control_group.differing(old, new) == [f"{V2}/{name}" for name in differ.split()]


def test_of_cpuset_version_1_only_what_was_there_counts():
    assert control_group.differing({}, {f"{CPUSET}/cpuset.cpus": "0-3"}) == []
    taken = control_group.differing({f"{CPUSET}/cpuset.cpus": "0-7"}, {f"{CPUSET}/cpuset.cpus": "0-3"})
    assert taken == [f"{CPUSET}/cpuset.cpus"]


def test_a_weight_is_recorded_also_where_the_controller_is_not_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(control_group, "ROOT", str(tmp_path))
    group = tmp_path / "system.slice/kimi.service"
    group.mkdir(parents=True)
    assert control_group.limits("/system.slice/kimi.service") == {}  # no hierarchy of either version
    (tmp_path / "cgroup.procs").touch()
    (group / "cpu.max").write_text("max 100000\n")
    (group.parent / "cpu.weight").write_text("50\n")
    assert control_group.limits("/system.slice/kimi.service") == {
        f"{group}/cpu.max": "max 100000",
        f"{group}/cpu.weight": "100",
        f"{group.parent}/cpu.weight": "50",
    }


def test_of_secrets_evidence_shows_no_value_and_the_message_all_words():
    message = "the running process has other values of HF_TOKEN than the release"
    found = finding.finding("x", message, ["Environment=HF_TOKEN=canary"], "so", "do", finding.UNDO)
    assert (found["message"], found["evidence"]) == (message, ["Environment=HF_TOKEN=(not shown)"])
    field = {"field": "environment.MY_KEY", "declared": "canary", "running": None}
    assert list(drift.process._lines(field)) == ["environment.MY_KEY: declared (not shown), running None"]


def test_evidence_that_is_left_out_is_counted():
    lines = [str(number) for number in range(1002)]
    assert finding.finding("x", "", lines[:1000], "", "", finding.UNDO)["evidence"] == lines[:1000]
    assert finding.finding("x", "", lines, "", "", finding.UNDO)["evidence"] == [*lines[:1000], "and 2 more"]


def test_every_finding_of_the_page_has_a_mutation():
    page = (Path(__file__).parents[3] / "docs/drift.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented, group = set(), ""
    for name in re.findall(r"`([a-z_.]+)`", " ".join(rows)):
        group = name.partition(".")[0] or group  # `.user` after `process.argv`
        documented.add(f"{group}.{name.partition('.')[2]}")
    assert documented == {name for mutation in TABLE for name in mutation.finds}


def test_metrics_count_what_was_looked_at():
    one = finding.finding("unit.file", "edited", [], "so", "do", finding.RESTART)
    results = [
        {"service": "a", "verdict": "drift", "findings": [one], "message": ""},
        {"service": "b", "verdict": "ok", "findings": [], "message": ""},
        {"service": "c", "verdict": "busy", "findings": [], "message": "a deploy"},
    ]
    assert text(metrics.rows(results, 1700000000.4, 0.25)) == (
        "# HELP servewright_drift_findings Findings of the last look for drift.\n"
        "# TYPE servewright_drift_findings gauge\n"
        'servewright_drift_findings{service="a"} 1\n'
        'servewright_drift_findings{service="b"} 0\n'
        "# HELP servewright_drift_finding One finding of the last look for drift.\n"
        "# TYPE servewright_drift_finding gauge\n"
        'servewright_drift_finding{service="a",id="unit.file",needs_restart="true"} 1\n'
        "# HELP servewright_drift_last_run_timestamp_seconds When drift was last looked for.\n"
        "# TYPE servewright_drift_last_run_timestamp_seconds gauge\n"
        "servewright_drift_last_run_timestamp_seconds 1700000000\n"
        "# HELP servewright_drift_duration_seconds How long the last look for drift took.\n"
        "# TYPE servewright_drift_duration_seconds gauge\n"
        "servewright_drift_duration_seconds 0.250\n"
    )
    assert list(metrics.lines(results)) == [
        "<4>a: drift unit.file: edited; do",
        "<4>c: not looked at: a deploy",
        "<6>looked for drift of 3 services: 1 findings",
    ]
