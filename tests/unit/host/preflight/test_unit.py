"""The unit and what is merged into it."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import systemd
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import HostError
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import (
    manager,
    resources,
    unit,
    unit_override,
)
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


@pytest.mark.parametrize(
    ("handed", "named"),
    [
        ("LANG=C.UTF-8\nLC_TIME=de_DE.UTF-8\nLANGUAGE=de\nPATH=/usr/bin\n", ""),
        ("PATH=/usr/bin\nNCCL_ALGO=Tree\nHTTP_PROXY=x\n", "HTTP_PROXY, NCCL_ALGO"),
        ("DECLARED=2\nSECRET=3\n", ""),  # what the unit sets wins
    ],
)
def test_a_variable_for_every_service_that_is_not_declared_is_fatal(subject, monkeypatch, handed, named):
    monkeypatch.setattr(manager.host, "run", lambda argv: SimpleNamespace(stdout=handed))
    found = said(manager.environment(subject(environment={"DECLARED": "1"}, secrets={"SECRET": {}})))
    assert [(severity, message.partition(": ")[2]) for severity, message, _repair in found] == (
        [("fatal", named)] if named else []
    )


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
    done = subprocess.CompletedProcess([], code, "", printed)
    monkeypatch.setattr(systemd, "run", lambda argv, check: done)
    said = systemd.verify_unit("/tmp/x/kimi.service")
    assert [part in line for part, line in zip(found, said, strict=True)] == [True] * len(found)


def test_a_unit_is_verified_by_systemd_before_250_too(monkeypatch):
    """Its systemd-analyze knows no --recursive-errors, and refuses to do anything then (Debian 11 has 247)."""

    def old(argv, check):
        if "--recursive-errors=no" in argv:
            said = "systemd-analyze: unrecognized option '--recursive-errors=no'\n"
            return subprocess.CompletedProcess([], 1, "", said)
        return subprocess.CompletedProcess([], 1, "", "kimi.service: Service has no ExecStart=. Refusing.\n")

    monkeypatch.setattr(systemd, "run", old)
    assert systemd.verify_unit("/tmp/x/kimi.service") == ["kimi.service: Service has no ExecStart=. Refusing."]


def test_a_unit_that_systemd_does_not_verify_is_not_taken_for_right(monkeypatch):
    done = subprocess.CompletedProcess([], 1, "", "Failed to create manager: No such file\n")
    monkeypatch.setattr(systemd, "run", lambda argv, check: done)
    with pytest.raises(HostError, match=r"verify failed \(1\): Failed to create manager"):
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
        ("TimeoutStartSec=2hours", 1, False),
        ("TimeoutSec=2min", 1, True),
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
    """Also those for all services and for all whose names begin alike, before systemd has read any of them."""
    found = [
        drop_in(root, "[Service]\nNice=1\nRestartSec=1\n", "aa", "service.d"),
        drop_in(root, "[Service]\nNice=2\nRestartSec=2\n", "bb", "tiny-.service.d"),
        drop_in(root, "[Service]\nNice=3\n", "cc", "tiny-k2.service.d"),
    ]
    drop_in(root, "[Service]\nNice=4\n", "cc", "service.d")  # of one name only the most special one is read
    drop_in(root, "[Service]\nNice=5\n", "cc", "../../lib/systemd/system/tiny-k2.service.d")
    drop_in(root, "[Service]\nNice=6\n", "zz", "other-.service.d")
    assert unit_override.merged("tiny-k2") == found
    values, origin = unit_override.effective({"service": "tiny-k2", "unit": "[Service]\nNice=0\nUser=x\n"})
    assert values == {"Service.Nice": "3", "Service.RestartSec": "2", "Service.User": "x"}
    assert origin == {"Service.Nice": found[2], "Service.RestartSec": found[1]}


def test_a_drop_in_for_every_service_can_hide_the_gpus(subject, root):
    path = drop_in(root, "[Service]\nPrivateDevices=yes\n", folder="service.d")
    assert [row[:2] for row in said(unit.drop_ins(subject(gpus=1)))] == [
        ("fatal", f"{path} sets PrivateDevices=yes, which hides the GPUs")
    ]


@pytest.mark.parametrize(
    ("lines", "name", "value"),
    [
        ("[Service]\nStartLimitInterval=7", "Unit.StartLimitIntervalSec", "7"),
        ("[Unit]\nStartLimitInterval=7", "Unit.StartLimitIntervalSec", "7"),
        ("[Service]\nStartLimitBurst=7", "Unit.StartLimitBurst", "7"),
        ("[Service]\nStartLimitIntervalSec=7", "Unit.StartLimitIntervalSec", "1"),  # that section has only the old name
        ("[Service]\nTimeoutSec=7", "Service.TimeoutStartSec", "7"),
        ("[Service]\nTimeoutSec=7", "Service.TimeoutStopSec", "7"),
        ("[Service]\nTimeoutSec=7\nTimeoutStartSec=8", "Service.TimeoutStartSec", "8"),
        # systemd 252 logs "Failed to parse ..., ignoring" for these.
        ("[Unit]\nStartLimitBurst=", "Unit.StartLimitBurst", "2"),
        ("[Unit]\nStartLimitBurst=many", "Unit.StartLimitBurst", "2"),
        ("[Unit]\nStartLimitIntervalSec=soon", "Unit.StartLimitIntervalSec", "1"),
        ("[Unit]\nStartLimitBurst=7\nStartLimitBurst=8", "Unit.StartLimitBurst", "8"),
        ("[Service]\nLimitMEMLOCK=", "Service.LimitMEMLOCK", "infinity"),
        ("[Service]\nAmbientCapabilities=CAP_NICE", "Service.AmbientCapabilities", "CAP_NET_BIND_SERVICE CAP_NICE"),
        ("[Service]\nAmbientCapabilities=", "Service.AmbientCapabilities", ""),
    ],
)
def test_a_drop_in_is_read_as_systemd_reads_it(state, root, lines, name, value):
    text = "[Unit]\nStartLimitIntervalSec=1\nStartLimitBurst=2\n[Service]\nTimeoutStartSec=3\nLimitMEMLOCK=infinity\n"
    drop_in(root, lines + "\n")
    release = {"service": "tiny", "unit": text + "AmbientCapabilities=CAP_NET_BIND_SERVICE\n"}
    assert unit_override.effective(release)[0][name] == value


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("1min 30s", 90), ("500ms", 0.5), ("2h", 7200), ("1d", 86400), ("infinity", math.inf), ("0", 0),
        # What `systemd-analyze timespan` of systemd 252 makes of them.
        ("2hours", 7200), ("2 h", 7200), ("5minutes 3us", 300.000003), ("1.5h", 5400), ("5m30", 330), ("1h30", 3630),
        ("1week", 604800), ("1month", 2629800), ("1M", 2629800), ("1y", 31557600), ("1µs", 1e-6), ("1μs", 1e-6),
    ],
)  # fmt: skip
def test_a_time_span_of_systemd(text, seconds):
    assert unit_override.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "3 foo", "2H", "-5", "soon", "1.2.3"])
def test_what_systemd_takes_for_no_time_span(text):
    with pytest.raises(ValueError, match=r"no time span|could not convert"):
        unit_override.seconds(text)
