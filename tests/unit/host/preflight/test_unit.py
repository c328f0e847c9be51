"""The unit and what is merged into it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import systemd
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import HostError
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import resources, unit, unit_override
from tests.unit.host.preflight.conftest import drop_in, said


@pytest.mark.parametrize(
    ("shown", "ours", "message", "repair"),
    [
        ({}, None, "", ""),
        ({"LoadState": "loaded"}, True, "", ""),
        ({"LoadState": "masked"}, None, "tiny.service is masked", "systemctl unmask tiny.service"),
        ({"UnitFileState": "masked-runtime"}, None, "tiny.service is masked", "systemctl unmask tiny.service"),
        ({"LoadState": "loaded"}, False, "was not written by servewright", "a name that no unit has"),
        ({"LoadState": "loaded", "FragmentPath": "/usr/lib/x"}, None, "exists at /usr/lib/x", "another name"),
    ],
)
def test_a_unit_name_that_is_somebody_elses(subject, state, monkeypatch, shown, ours, message, repair):
    state.update(shown)
    monkeypatch.setattr(systemd, "ours", lambda service: ours)
    found = said(unit.unit_is_ours(subject()))
    assert len(found) == bool(message)
    for severity, text, what in found:
        assert (severity, message in text, repair in what) == ("fatal", True, True)


@pytest.mark.parametrize(
    ("line", "gpus", "severity"),
    [
        ("PrivateDevices=yes", 1, "fatal"),
        ("PrivateDevices=no", 1, "warning"),
        ("PrivateDevices=yes", 0, "warning"),
        ("DevicePolicy=closed", 1, "fatal"),
        ("DevicePolicy=strict", 1, "fatal"),
        ("DevicePolicy=auto", 1, "warning"),
        ("ProtectClock=TRUE", 1, "fatal"),
        ("ProtectClock=on", 0, "warning"),
        ("MemoryDenyWriteExecute=1", 0, "fatal"),
        ("PrivateNetwork=yes", 0, "fatal"),
        ("Nice=5", 1, "warning"),
    ],
)
def test_a_drop_in_that_no_engine_survives_is_fatal_and_any_other_is_named(subject, root, line, gpus, severity):
    path = drop_in(root, f"[Service]\n{line}\n")
    ((found, message, repair),) = said(unit.drop_ins(subject(gpus=gpus)))
    assert (found, path in message) == (severity, True)
    assert repair.startswith("take that line out" if severity == "fatal" else "declare what it does")


def test_what_systemd_says_of_the_unit_is_fatal_but_for_what_the_first_deploy_brings(subject, monkeypatch):
    def verify(path):
        assert Path(path).name == "tiny.service"
        assert "ExecStart=" in Path(path).read_text()
        return [
            f"{path}:7: Unknown key name 'Restrat' in section 'Service', ignoring.",
            "tiny.service: Command /usr/local/lib/servewright/host.pyz is not executable: No such file or directory",
            "tiny.service: Failed to resolve user llm-tiny: No such process",
        ]

    monkeypatch.setattr(systemd, "verify_unit", verify)
    (found,) = said(unit.unit_text(subject()))
    assert found == (
        "fatal",
        "tiny.service:7: Unknown key name 'Restrat' in section 'Service', ignoring.",
        "this is a defect of the unit template",
    )


@pytest.mark.parametrize(
    ("printed", "code", "found"),
    [
        ("", 0, []),
        # As systemd 252 prints it: with 0 what it ignores, with 1 what it refuses.
        ("/tmp/x/kimi.service:6: Unknown key 'Restrat' in section [Service], ignoring.\n", 0, [":6: Unknown key"]),
        ("kimi.service: Service has no ExecStart=. Refusing.\nUnit kimi.service has a bad unit file setting.\n", 1,
         ["Service has no", "Unit kimi"]),
        # Other units of the host, which this one waits for or excludes.
        ("/etc/systemd/system/old-kimi.service:2: Unknown key 'Restrat' in section [Service], ignoring.\n", 0, []),
    ],
)  # fmt: skip
def test_what_systemd_says_of_a_unit_is_told_from_what_it_says_of_others(monkeypatch, printed, code, found):
    asked = []
    done = subprocess.CompletedProcess([], code, "", printed)
    monkeypatch.setattr(systemd, "run", lambda argv, check: asked.append(argv) or done)
    said = systemd.verify_unit("/tmp/x/kimi.service")
    assert [part in line for part, line in zip(found, said, strict=True)] == [True] * len(found)
    assert asked == [["systemd-analyze", "verify", "/tmp/x/kimi.service"]]  # no option: Debian 11 has systemd 247


def test_a_unit_that_systemd_does_not_verify_is_not_taken_for_right(monkeypatch):
    printed = "systemd-analyze: unrecognized option '--recursive-errors=no'\n"
    done = subprocess.CompletedProcess([], 1, "", printed)
    monkeypatch.setattr(systemd, "run", lambda argv, check: done)
    with pytest.raises(HostError, match=r"verify failed \(1\): systemd-analyze: unrecognized option"):
        systemd.verify_unit("/tmp/x/kimi.service")


@pytest.mark.parametrize(
    ("window", "burst", "delay", "load", "severity"),
    [
        ("6345", 3, "15", 2100, None),
        ("50", 5, "10", 1, "fatal"),  # five starts take just that
        ("51", 5, "10", 0.1, None),
        ("51", 5, "10", 1, "warning"),
        ("0", 5, "10", 1, "fatal"),  # that turns it off
        ("infinity", 5, "10", 1, None),
        ("infinity", 0, "10", 1, "fatal"),  # that turns it off, too
        ("99", 0, "10", 1, "fatal"),
        ("2min", 5, "10s", 14, None),
    ],
)
@pytest.mark.failure("2.9")
def test_2_9_a_limiter_that_can_trip(subject, root, window, burst, delay, load, severity):
    path = drop_in(
        root,
        f"[Unit]\nStartLimitIntervalSec={window}\nStartLimitBurst={burst}\n[Service]\nRestartSec={delay}\n",
    )
    found = said(unit.limiter(subject(verify={"load_timeout": load})))
    assert [row[0] for row in found] == ([severity] if severity else [])
    assert all(row[2] == f"correct {path}" for row in found)


def test_a_limiter_of_the_unit_itself_is_not_a_users_to_mend(subject):
    ((severity, message, repair),) = said(unit.limiter(subject(verify={"load_timeout": 9999})))
    assert (severity, repair) == ("warning", "this is a defect of the unit template")
    assert "trips within 6345 s, but 3 starts" in message
    assert unit.limiter(subject()) == []


@pytest.mark.parametrize(
    ("line", "gpus", "refused"),
    [
        ("", 1, False),
        ("TimeoutStartSec=2min", 1, True),
        ("TimeoutStartSec=121", 1, False),
        ("TimeoutStartSec=2min", 0, False),
        ("TimeoutStartSec=infinity", 1, False),
        ("TimeoutStartSec=0", 1, False),
    ],
)
def test_the_wait_for_gpus_ends_before_systemds_start_timeout(subject, root, line, gpus, refused):
    path = drop_in(root, f"[Service]\n{line}\n")
    message = "TimeoutStartSec=120 ends the wait for free GPUs, which may take 120 s"
    assert said(unit.timeouts(subject(gpus=gpus))) == ([("fatal", message, f"correct {path}")] if refused else [])


def test_limits_that_the_unit_lifts_and_a_drop_in_lowers_again(subject, root, monkeypatch):
    monkeypatch.setattr(resources.proc, "most_open_files", lambda: 1 << 20)
    assert resources.limits(subject()) == []
    path = drop_in(root, "[Service]\nLimitMEMLOCK=8M\n")
    message = "the unit does not set LimitMEMLOCK=infinity, and pinned memory fails"
    assert said(resources.limits(subject())) == [("fatal", message, f"correct {path}")]


def test_open_files_that_the_kernel_does_not_grant(subject, monkeypatch):
    monkeypatch.setattr(resources.proc, "most_open_files", lambda: 65536)
    message = "the kernel grants 65536 open files at most, declared are 1048576"
    assert said(resources.limits(subject())) == [("warning", message, "declare at most 65536")]
    monkeypatch.setattr(resources.proc, "most_open_files", lambda: 0)  # no bound
    assert resources.limits(subject()) == []


def test_the_last_drop_in_by_name_wins_wherever_it_lies(root, state):
    state["DropInPaths"] = drop_in(root, "[Service]\nNice=1\nRestartSec=1\n", "aa")
    later = drop_in(root, "[Service]\nNice=2\n", "bb")
    release = {"service": "tiny", "unit": "[Service]\nNice=0\n"}
    assert unit_override.drop_ins("tiny") == [state["DropInPaths"], later]  # systemd has not read the later one
    values, origin = unit_override.effective(release)
    assert values == {"Service.Nice": "2", "Service.RestartSec": "1"}
    assert origin["Service.Nice"] == later


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1min 30s", 90), ("500ms", 0.5), ("2h", 7200), ("1d", 86400), ("infinity", None), ("0", 0)],
)
def test_a_time_span_of_systemd(text, seconds):
    assert unit_override.seconds(text) == seconds
