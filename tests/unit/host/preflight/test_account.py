"""The service's user, the folders it writes to, and what a start takes from the host."""

from __future__ import annotations

import io
import os
import pwd
import types

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import commands, proc, releases, systemd, users
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import DamagedError
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import account, resources, system
from ansible_collections.servewright.llm.plugins.module_utils.host.surroundings import host
from tests.unit.host.preflight.conftest import said

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.failure("1.1")
@pytest.mark.parametrize(
    ("uid", "last", "remove", "refused"),
    [
        (1000, 999, "yes", True),
        (999, 999, "yes", False),
        (1000, 1999, "yes", False),
        (1000, 999, "no", False),
        (1000, 999, "False", False),
        (1000, 999, "on", True),
        (None, 999, "yes", False),
    ],
)
def test_1_1_a_user_whose_shared_memory_logind_deletes(subject, monkeypatch, uid, last, remove, refused):
    def look_up(name):
        if uid is None:
            raise KeyError(name)
        return types.SimpleNamespace(pw_uid=uid)

    monkeypatch.setattr(pwd, "getpwnam", look_up)
    monkeypatch.setattr(account, "_last_system_uid", lambda: last)
    monkeypatch.setattr(host, "logind", lambda: {"RemoveIPC": remove})
    found = account.user(subject())
    assert [item["evidence"] for item in found] == [{"uid": 1000}] * refused
    for severity, message, repair in said(found):
        assert (severity, message.startswith("user llm-tiny (1000) is a login user")) == ("fatal", True)
        assert repair == "declare a system user (uid up to 999), or set RemoveIPC=no in logind.conf"


@pytest.mark.parametrize(
    ("text", "last"), [("#SYS_UID_MAX 5\nSYS_UID_MAX\t499\n", 499), ("UID_MIN 1000\n", 999), (None, 999)]
)
def test_the_range_of_system_users_is_the_hosts_own(monkeypatch, text, last):
    def read(path):
        if text is None:
            raise FileNotFoundError(path)
        return io.StringIO(text)

    monkeypatch.setattr(account, "open", read, raising=False)
    assert account._last_system_uid() == last


@pytest.mark.failure("6.18")
@pytest.mark.parametrize("variable", account.CACHES)
def test_6_18_a_cache_outside_of_what_the_unit_may_write_is_refused(subject, variable):
    cache = "/var/cache/servewright/nothing"

    def look(path):
        found = account.caches(subject(cache=cache, environment={variable: path}))
        assert all(item["evidence"] == {"variable": variable} for item in found)
        return said(found)

    message = f"{variable}=/models/x cannot be written in the unit, which sees the system read-only"
    assert look("/models/x") == [("fatal", message, f"leave it out; the default is below {cache}")]
    for path in (f"{cache}/x", cache, "/tmp/x", "/var/tmp", "/dev/shm/x", ""):
        assert look(path) == []
    assert len(look(f"{cache}2/x")) == len(look(f"{cache}/../x")) == 1


@pytest.mark.failure("6.18")
def test_6_18_a_folder_that_the_user_cannot_write(subject, root, monkeypatch):
    cache = root / "cache"
    (cache / "own/deep").mkdir(parents=True)
    (cache / "file").touch()
    asked = []
    monkeypatch.setattr(users, "_refused", lambda name, paths, mode: asked.extend(paths) or list(paths))
    monkeypatch.setattr(account, "_uid", lambda name: os.getuid())
    environment = {"HOME": f"{cache}/own/deep", "TMPDIR": f"{cache}/none", "XDG_CACHE_HOME": str(cache)}
    found = subject(cache=str(cache), environment=environment)
    assert said(account.caches(found)) == [
        ("fatal", f"user llm-tiny cannot write to {path}", f"chown -R llm-tiny: {path}, or move it away")
        for path in (cache / "own/deep", cache / "own")
    ]
    assert str(cache) not in asked  # systemd gives it to the user at each start
    monkeypatch.setattr(account, "_uid", lambda name: None)
    assert account.caches(found) == []  # all of it will be the user's that the deploy makes
    monkeypatch.setattr(account, "_uid", lambda name: os.getuid() + 1)
    assert account.caches(found) == []  # the folder was another user's: all of it changes hands at the start


def test_hf_home_may_be_a_store_that_is_only_read(subject):
    found = said(account.caches(subject(environment={"HF_HOME": "/models"})))
    assert found == [("warning", "HF_HOME=/models is read-only in the unit", "leave it out, unless it is only read")]
    assert account.caches(subject(cache="/var/cache/x", environment={"HF_HOME": "/var/cache/x/hf"})) == []


CHANNEL = resources.NCCL_CHANNEL_BYTES


@pytest.mark.failure("1.7")
@pytest.mark.parametrize(
    ("gpus", "free", "size", "severity", "message"),
    [
        (8, 8 * 2 * 2 * CHANNEL + 64 * MIB, GIB, "ok", "this needs about 358 MiB"),
        (8, 8 * 2 * 2 * CHANNEL + 64 * MIB - 1, GIB, "warning", "mount -o remount,size=716M /dev/shm"),
        (8, 8 * 2 * CHANNEL, GIB, "warning", "mount -o remount"),
        (8, 8 * 2 * CHANNEL - 1, 64 * MIB, "fatal", "mount -o remount,size=716M /dev/shm, and in /etc/fstab"),
        (8, 8 * 2 * CHANNEL - 1, GIB, "fatal", "remove dead files in /dev/shm"),
        (1, 0, GIB, None, ""),
    ],
)
def test_1_7_room_for_the_channels_of_nccl(subject, monkeypatch, gpus, free, size, severity, message):
    state = types.SimpleNamespace(f_blocks=size // 2, f_bavail=free // 2 - 2, f_frsize=2)
    monkeypatch.setattr(os, "statvfs", lambda path: state)
    monkeypatch.setattr(resources, "_held", lambda user: 4 + free % 2)  # what the service that is replaced gives back
    found = resources.shared_memory(subject(gpus=gpus))
    assert [row[0] for row in said(found)] == ([severity] if severity else [])
    assert all(message in f"{row[1]} -> {row[2]}" for row in said(found))
    assert [item["evidence"]["free_bytes"] for item in found] == [free] * len(found)


@pytest.mark.failure("1.7")
def test_1_7_more_channels_and_a_private_dev_shm_are_reckoned_with(subject, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: types.SimpleNamespace(f_blocks=1, f_bavail=1, f_frsize=1))
    monkeypatch.setattr(resources, "_held", lambda user: 0)

    def look(size, **environment):
        unit = f"[Service]\nTemporaryFileSystem=/dev/shm:size={size},mode=1777\n"
        (found,) = resources.shared_memory(subject(gpus=2, unit=unit, environment=environment))
        return found

    assert look("1G")["severity"] == "ok"
    assert look("1G")["evidence"]["size_bytes"] == GIB
    for name in ("NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS"):
        assert look("200M", **{name: "8"})["severity"] == "warning"
        assert look("200M", **{name: "1"})["severity"] == "ok"
        assert look("200M", **{name: "?"})["severity"] == "ok"
    small = look("8M")
    assert (small["severity"], small["repair"]) == ("fatal", "declare a larger shared_memory_size")


NEED = 2 * 2 * 2 * CHANNEL + 64 * MIB  # of two GPUs
BY_MAPPING = '{"kv_connector": "%s", "kv_connector_extra_config": {"cpu_bytes_to_use": %d}}'


@pytest.mark.failure("1.3")
@pytest.mark.parametrize(
    ("gpus", "words", "facts", "offloaded"),
    [
        (1, ("--kv-offloading-size", "400"), {}, 400),
        (2, ("--kv-offloading-size", "400"), {}, 400),
        (2, ("--kv-offloading-size", "0.5", "--kv-offloading-backend", "native"), {}, 0.5),
        (2, ("--kv-transfer-config", BY_MAPPING % ("OffloadingConnector", 3 * GIB)), {}, 3),
        (2, ("--kv-offloading-size", "400", "--kv-offloading-backend", "lmcache"), {}, 0),
        (2, ("--kv-offloading-size", "400"), {"environment": {"VLLM_USE_SIMPLE_KV_OFFLOAD": "1"}}, 0),
        (2, ("--kv-transfer-config", BY_MAPPING % ("SimpleCPUOffloadConnector", 3 * GIB)), {}, 0),
        (2, ("--kv-transfer-config", '{"kv_connector_extra_config": []}'), {}, 0),
        (2, ("--kv-offloading-size", "400"), {"version": "0.25.1"}, 0),  # memory of the workers' own
        (2, ("--kv-offloading-size", "400"), {"engine": "sglang"}, 0),
        (0, ("--kv-offloading-size", "400"), {}, None),
    ],
)
def test_1_3_room_for_offloaded_kv_cache(subject, monkeypatch, gpus, words, facts, offloaded):
    def look(free):
        state = types.SimpleNamespace(f_blocks=1 << 50, f_bavail=int(free), f_frsize=1)
        monkeypatch.setattr(os, "statvfs", lambda path: state)
        monkeypatch.setattr(resources, "_held", lambda user: 0)
        return resources.shared_memory(subject(*words, gpus=gpus, **{"engine": "vllm", **facts}))

    if offloaded is None:
        assert look(0) == []
        return
    need = offloaded * GIB + (NEED if gpus == 2 else 64 * MIB)
    assert [item["severity"] for item in look(need)] == ["ok"]
    assert [item["severity"] for item in look(need - 1)] == ["warning"]
    if offloaded:
        (item,) = look(offloaded * GIB - 1)
        assert item["severity"] == "fatal"
        assert f", {int(offloaded * 1024)} of them for offloaded KV cache" in item["message"]
        assert item["evidence"]["offloaded_bytes"] == offloaded * GIB


@pytest.mark.failure("1.3")
def test_1_3_each_data_parallel_rank_has_offloaded_kv_cache_of_its_own(subject, monkeypatch):
    state = types.SimpleNamespace(f_blocks=1 << 50, f_bavail=25 * GIB, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda path: state)
    monkeypatch.setattr(resources, "_held", lambda user: 0)
    found = subject("--kv-offloading-size", "10", gpus=2, engine="vllm")
    assert resources.shared_memory(found)[0]["severity"] == "ok"
    found.release["parallelism"].update(tensor=1, data=3)
    ((severity, _message, repair),) = said(resources.shared_memory(found))
    assert severity == "warning"
    assert repair == f"make it larger: mount -o remount,size={30 * 1024 + 2 * NEED // MIB}M /dev/shm"


def test_what_a_user_holds_in_dev_shm_is_what_its_files_take(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "SHM", str(tmp_path))
    (tmp_path / "a").write_bytes(bytes(8192))
    me, other = pwd.getpwuid(os.geteuid()).pw_name, "nobody"
    assert resources._held(me) >= 8192
    assert resources._held(other) == resources._held("no such user") == 0


@pytest.mark.parametrize(("gpus", "need"), [(0, 4), (1, 4), (8, 18)])
def test_memory_for_the_processes_of_the_engine(subject, state, monkeypatch, gpus, need):
    free = need * GIB - 2 * MIB
    monkeypatch.setattr(resources, "open", lambda path: io.StringIO(f"MemAvailable: {free >> 10} kB\nHugePages: x y\n"),
                        raising=False)  # fmt: skip
    monkeypatch.setattr(systemd, "pids", lambda group: [1, 2])
    monkeypatch.setattr(proc, "private_bytes", lambda pid: MIB)
    (found,) = resources.memory(subject(gpus=gpus))
    assert (found["severity"], found["evidence"]) == ("ok", {"free_bytes": need * GIB, "need_bytes": need * GIB})
    monkeypatch.setattr(systemd, "pids", lambda group: [1])
    (found,) = resources.memory(subject(gpus=gpus))
    assert (found["severity"], found["repair"]) == ("warning", "stop what else runs here")
    assert found["message"].startswith(f"{need}.0 GiB of memory are free")
    assert f"about {need} GiB" in found["message"]


@pytest.mark.parametrize(
    ("now", "newest", "says", "messages"),
    [
        (2e9, 1.9e9, "NTP=yes\nNTPSynchronized=yes", []),
        (2e9, None, "NTP=yes\nNTPSynchronized=yes", []),  # neither file is there
        (2e9, 2e9 + 60, "NTP=no\nNTPSynchronized=no", []),
        (2e9, 2e9 + 61, "", ["the clock is behind the host's own files: 2033-05-18 03:33 -> set it, and turn NTP on"]),
        (1.6e9, 0, "", ["the clock is behind the host's own files: 2020-09-13 12:26 -> set it, and turn NTP on"]),
        (2e9, 0, "NTP=yes\nNTPSynchronized=no", ["NTP is on, but the clock is not synchronised -> see timedatectl"]),
    ],
)
def test_the_clock(subject, monkeypatch, now, newest, says, messages):
    monkeypatch.setattr(resources.time, "time", lambda: now)
    monkeypatch.setattr(resources.os.path, "exists", lambda path: newest is not None)
    found = subject()
    monkeypatch.setattr(resources.os, "stat", lambda path: types.SimpleNamespace(st_mtime=newest))
    monkeypatch.setattr(commands, "run", lambda argv, **options: types.SimpleNamespace(stdout=says))
    rows = said(resources.clock(found))
    assert [f"{message} -> {repair}" for _severity, message, repair in rows] == messages
    assert {row[0] for row in rows} <= {"warning"}


@pytest.mark.parametrize(
    ("free", "files", "refused"), [(64 * MIB, 100, False), (64 * MIB - 1, 100, True), (64 * MIB, 99, True)]
)
def test_room_for_a_release(subject, monkeypatch, free, files, refused):
    monkeypatch.setattr(os, "statvfs", lambda path: types.SimpleNamespace(f_bavail=free, f_frsize=1, f_favail=files))
    assert said(system.space(subject())) == [
        ("fatal", f"less than 64 MiB or 100 files are free under {folder}", "make room there")
        for folder in ("/etc", "/var/lib")
        if refused
    ]


def test_a_committed_release_that_somebody_edited(subject, monkeypatch):
    def load(service, number):
        raise DamagedError("release 3 of tiny was edited")

    assert system.intact(subject()) == []
    monkeypatch.setattr(releases, "committed", lambda service: {"release": 3})
    monkeypatch.setattr(releases, "startable", lambda service, number: {})
    assert system.intact(subject()) == []
    monkeypatch.setattr(releases, "startable", load)
    repair = "restore the file; 'servewright drift' says more"
    assert said(system.intact(subject())) == [("fatal", "release 3 of tiny was edited", repair)]
