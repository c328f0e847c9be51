"""Where a planned value comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from servewright.release import sources
from servewright.spec import positions
from tests.unit.spec.samples import service

PROFILE = {"name": "mine", "settings": {"NCCL_NTHREADS": {"value": "256", "reason": "tried"}}}


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Variables of a host in a file, one key a line, with the marks that Ansible gives them."""
    declared = {
        "servewright_services": [
            service(name="other", listen={"port": 1}),
            service(
                gpus=[0],
                environment={"A": "1"},
                secrets={"KEY": {"variable": "v"}},
                nccl={"profile": "mine", "environment": {"NCCL_MIN_NCHANNELS": "4"}},
                options={"max_running_requests": 8},
                extra_args={"log-level": "info"},
                limits={"restart_delay": 9},
            ),
        ],
        "servewright_nccl_profiles": [PROFILE],
        "servewright_host": {"drift_timer": {"schedule": "hourly"}},
    }
    path = tmp_path / "llm.yml"
    path.write_text(yaml.safe_dump(declared, sort_keys=False))
    places = {name: found for name, _, found in positions.definitions(path, set(declared))[0]}
    monkeypatch.setattr("servewright.release.service.from_ansible", lambda value, at: (value, places.get(at[0], {})))
    return {"path": path, **declared}


def found(variables: dict[str, object], field: str, new: object = "x") -> tuple[str, str]:
    """Origin, and the key at the line that is named."""
    change = {"field": field, "old": None, "new": new, "consequence": "restart"}
    sources.annotate(
        [{"service": "tiny", "changes": [change]}, {"service": "gone", "changes": [dict(change)]}], variables
    )
    source = change.get("source")
    if not isinstance(source, dict):
        return "", ""
    path = variables["path"]
    assert isinstance(path, Path)
    lines = path.read_text().splitlines()
    return source["origin"], lines[source["line"] - 1].strip(" -").partition(":")[0] if source["file"] else ""


@pytest.mark.parametrize(
    ("field", "origin", "key"),
    [
        ("version", "", "version"),
        ("model.path", "", "path"),
        ("model.context_length", "default", ""),
        ("service", "", "name"),
        ("flag --model-path", "", "path"),
        ("flag --port", "", "port"),
        ("flag --max-running-requests", "", "max_running_requests"),
        ("flag --log-level", "", "log-level"),
        ("flag --attention-backend", "default", ""),
        ("running flag --port", "", "port"),
        ("flag command", "", "version"),
        ("environment.A", "", "A"),
        ("running environment.A", "", "A"),
        ("environment.CUDA_VISIBLE_DEVICES", "", "gpus"),
        ("environment.NCCL_MIN_NCHANNELS", "", "NCCL_MIN_NCHANNELS"),
        ("environment.NCCL_NTHREADS", "profile mine v1", "NCCL_NTHREADS"),
        ("environment.HF_HOME", "servewright", ""),
        ("secret KEY", "", "KEY"),
        ("service other", "", "gpus"),
        ("unit Service.RestartSec", "", "restart_delay"),
        ("unit Service.TimeoutStopSec", "default", ""),
        ("unit Service.NoNewPrivileges", "servewright", ""),
        ("verify.stable", "default", ""),
        ("keep.days", "default", ""),
        ("expected.tp_size", "default", ""),
        ("host drift_timer", "", "drift_timer"),
        ("unit drop-in", "", ""),
        ("running process", "", ""),
        ("unit file", "", ""),
        ("unit file Service.RestartSec", "", ""),
    ],
)
def test_a_field_leads_to_its_key(variables: dict[str, object], field: str, origin: str, key: str) -> None:
    assert found(variables, field) == (origin, key)


def test_what_goes_away_is_no_longer_declared(variables: dict[str, object]) -> None:
    assert found(variables, "environment.GONE", None) == ("not declared", "")
    assert found(variables, "environment.NCCL_ALGO", None) == ("", "profile")
