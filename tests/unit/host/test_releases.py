"""Releases on disk, and what differs between two."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import deploy, difference, releases
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import DamagedError, HostError, RefusedError
from servewright.release.render import render
from servewright.spec import validate
from tests.unit.spec.samples import service

TEMPLATES = Path(__file__).parents[3] / "templates"


def rendered(nccl=None, **changes):
    (valid,) = validate.services([service(**changes)])
    return render(valid, nccl or {}, TEMPLATES)


def test_a_release_gets_the_next_number_and_comes_back(root):
    assert [releases.stage(rendered(), ""), releases.stage(rendered(description="x"), "")] == [1, 2]
    assert releases.load("tiny", 2) == rendered(description="x")
    assert releases.numbers("tiny") == [1, 2]


def test_the_unit_carries_number_and_digest(root):
    number = releases.stage(rendered(), "")
    assert releases.unit_on_disk("tiny", number).endswith(
        f"[X-Servewright]\nRelease=1\nDigest={rendered()['digest']}\n"
    )


def test_secrets_are_in_a_file_of_the_release_that_only_root_reads(root):
    release = rendered(secrets={"KEY": {"variable": "v"}})
    number = releases.stage(release, releases.secret_text(release, {"KEY": 'a"$`\\b\nc'}))
    path = os.path.join(releases.folder("tiny", number), "environment")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert Path(path).read_text() == 'KEY="a\\"\\$\\`\\\\b\nc"\n'
    assert f"EnvironmentFile={releases.folder('tiny', 1)}/environment" not in release["unit"]


def test_a_secret_file_that_is_missing_is_named(root):
    with pytest.raises(RefusedError, match="secret KEY: there is no file /nothing"):
        releases.secret_text(rendered(secrets={"KEY": {"file": "/nothing"}}), {})


@pytest.mark.parametrize(("content", "said"), [(b"\xff", "is not text"), (b"a\0b", "holds a NUL byte")])
def test_a_secret_that_no_environment_holds_is_refused(root, tmp_path, content, said):
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(RefusedError, match=f"secret KEY.*{said}"):
        releases.secret_text(rendered(secrets={"KEY": {"file": str(tmp_path / "key")}}), {})


@pytest.mark.parametrize(
    ("content", "lost"),
    [
        ('A="1"\nB="two\nlines"\n', ""),
        ('A="1"\n', "has no value of B"),
        ("", "has no value of A, B"),
        (None, "environment is missing"),
    ],
)
def test_a_release_without_its_secrets_cannot_be_started_or_gone_back_to(root, content, lost):
    number = releases.stage(rendered(secrets={"A": {"variable": "a"}, "B": {"variable": "b"}}), "")
    releases.commit("tiny", releases.stage(rendered(), ""), 2)
    path = Path(releases.folder("tiny", number)) / "environment"
    path.unlink() if content is None else path.write_text(content)
    assert releases.startable("tiny", 2) == rendered()
    if not lost:
        assert releases.startable("tiny", number)["secrets"]
        return
    with pytest.raises(DamagedError, match=lost):
        releases.startable("tiny", number)
    back = deploy.rollback("tiny", number)
    assert (back["verdict"], lost in back["message"]) == ("error", True)


def test_the_same_content_is_found_again_and_another_secret_is_not(root):
    number = releases.stage(rendered(), 'A="1"\n')
    assert releases.find(rendered(), 'A="1"\n') == number
    assert releases.find(rendered(), 'A="2"\n') is None
    assert releases.find(rendered(description="x"), 'A="1"\n') is None


@pytest.mark.parametrize("name", ["release.json", "unit"])
def test_an_edited_release_is_named(root, name):
    number = releases.stage(rendered(), "")
    path = Path(releases.folder("tiny", number)) / name
    path.write_text(path.read_text().replace("30000", "30001"))
    with pytest.raises(DamagedError, match="edited by hand"):
        releases.load("tiny", number)


def test_a_release_that_is_not_there_is_named_with_those_that_are(root):
    releases.stage(rendered(), "")
    with pytest.raises(HostError, match="no release 7 of tiny; there are: 1"):
        releases.load("tiny", 7)


CHANGES = [
    ({"engine": "vllm", "version": "0.32.0"}, {}, ("engine", "sglang", "vllm", "restart")),
    ({"version": "0.5.22"}, {}, ("version", "0.5.23", "0.5.22", "restart")),
    ({"venv": "/opt/mine"}, {}, ("venv", "/opt/servewright/engines/sglang-0.5.23", "/opt/mine", "restart")),
    ({"model": {"path": "/m", "served_name": "tiny"}}, {}, ("model.path", "/models/tiny", "/m", "restart")),
    ({"secrets": {"KEY": {"variable": "v"}}}, {}, ("secret KEY", None, "(secret, changed)", "restart")),
    ({"options": {"max_running_requests": 32}}, {}, ("flag --max-running-requests", None, "32", "restart")),
    ({"environment": {"A": "1"}}, {}, ("environment.A", None, "1", "restart")),
    ({}, {"NCCL_ALGO": "Ring"}, ("environment.NCCL_ALGO", None, "Ring", "restart")),
    ({"limits": {"open_files": 2048}}, {}, ("unit Service.LimitNOFILE", "1048576", "2048", "restart")),
    ({"limits": {"restart_delay": 9}}, {}, ("unit Service.RestartSec", "15", "9", "reload")),
    ({"description": "x"}, {}, ("unit Unit.Description", "tiny on sglang 0.5.23", "x", "reload")),
    ({"verify": {"stable": 3}}, {}, ("verify.stable", 10, 3, "none")),
    ({"keep": {"releases": 9}}, {}, ("keep.releases", 10, 9, "none")),
    ({"maintenance": ["Sun 03:00-05:00"]}, {}, ("maintenance", [], ["Sun 03:00-05:00"], "none")),
]


@pytest.mark.parametrize(("changes", "nccl", "expected"), CHANGES, ids=[row[2][0] for row in CHANGES])
def test_a_change_names_field_values_and_consequence(changes, nccl, expected):
    found = [tuple(change.values()) for change in difference.between(rendered(), rendered(nccl, **changes))]
    assert expected in found
    assert {row[3] for row in found} <= {expected[3], "none", "reload"}


def test_a_first_release_is_one_change():
    (change,) = difference.between(None, rendered())
    assert tuple(change.values()) == ("service", None, "sglang 0.5.23", "restart")


def test_what_gates_expect_is_a_change_without_effect():
    found = difference.between(rendered(), rendered(options={"max_running_requests": 8}))
    assert ("expected.max_running_requests", None, 8, "none") in [tuple(change.values()) for change in found]


# What systemd takes up without touching the process; every other setting needs a restart.
RELOADED = {
    "Unit.Description",
    "Unit.After",
    "Unit.Wants",
    "Unit.StartLimitIntervalSec",
    "Unit.StartLimitBurst",
    "Service.EnvironmentFile",
    "Service.ExecStartPre",
    "Service.ExecStopPost",
    "Service.KillMode",
    "Service.Restart",
    "Service.RestartPreventExitStatus",
    "Service.RestartSec",
    "Service.TemporaryFileSystem /run/servewright/nccl",
    "Service.TimeoutStartSec",
    "Service.TimeoutStopSec",
    "Install.WantedBy",
}


def test_each_setting_of_a_unit_says_whether_it_needs_a_restart():
    release = rendered(gpus=[0, 1], parallelism={"tensor": 2}, shared_memory="private", shared_memory_size="1G")
    reloaded = set()
    settings = difference.unit_settings(release["unit"])
    for name in settings:
        section, setting = name.split(" ")[0].split(".")
        value = "/run/servewright/nccl:size=1" if " " in name else "other"
        unit = f"{release['unit']}[{section}]\n{setting}={value}\n"
        (change,) = difference.between(release, dict(release, unit=unit))
        assert change["field"] == f"unit {name}"
        reloaded |= {name} if change["consequence"] == "reload" else set()
    assert reloaded == RELOADED
    assert {"Service.User", "Service.LimitNOFILE", "Service.TemporaryFileSystem"} < set(settings)


def test_a_unit_is_compared_by_what_it_says():
    text = """# Written by somebody.
[Service]

ExecStart=/bin/engine \\
  --flag
Environment=A=1
DeviceAllow=one
DeviceAllow=two \\
 three
[X-Servewright]
Release=1
"""
    assert difference.unit_settings(text) == {"Service.DeviceAllow": "one two  three"}


def test_no_change_is_no_difference():
    assert difference.between(rendered(), rendered()) == []


def test_a_changed_secret_is_never_shown():
    release = rendered(secrets={"KEY": {"variable": "v"}})
    (change,) = difference.between(release, release, {"KEY"})
    assert change == {"field": "secret KEY", "old": "(secret)", "new": "(secret, changed)", "consequence": "restart"}
    assert difference.between(release, release) == []
    assert {"field": "secret KEY", "old": "(secret)", "new": None, "consequence": "restart"} in difference.between(
        release, rendered()
    )
