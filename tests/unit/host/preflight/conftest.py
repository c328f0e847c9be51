"""A release to look at on a host that is made up: nothing here asks systemd or a GPU."""

from __future__ import annotations

import json

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import drop_ins, systemd, users
from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import check
from tests.unit.host.test_releases import rendered

GPU = {"uuid": "", "name": "NVIDIA H200", "total_mib": 100 << 10, "used_mib": 0, "compute_capability": "9.0",
       "driver": "580.95", "place": "", "warnings": []}  # fmt: skip
NOTHING = {"LoadState": "not-found", "UnitFileState": "", "FragmentPath": "", "DropInPaths": "", "ControlGroup": ""}


@pytest.fixture
def state(root, monkeypatch):
    """What systemd says of every unit: nothing is there, unless a test changes it."""
    shown = dict(NOTHING)
    monkeypatch.setattr(systemd, "show", lambda unit: shown)
    monkeypatch.setattr(drop_ins, "FOLDERS", (str(root / "systemd/system"), str(root / "lib/systemd/system")))
    return shown


@pytest.fixture
def subject(state, root, monkeypatch):
    """Makes a Subject: words more of the command line, number of GPUs that are claimed and there, facts of the release.

    `config` is that of the model, which is in the folder root/model.
    """
    monkeypatch.setattr(users, "_refused", lambda name, paths, mode: [])

    def make(*words, gpus=0, config=None, health=None, links="", engine="sglang", **facts):
        release = rendered(engine=engine, version={"sglang": "0.5.23", "vllm": "0.32.0"}[engine])
        release["model"] = {**release["model"], "path": str(root / "model")}
        release["parallelism"]["tensor"] = max(1, gpus)
        release["gpus"] = list(range(gpus))
        release.update(facts)
        release["argv"] = [*release["argv"], *words]
        (root / "model").mkdir(exist_ok=True)
        if config is not None:
            (root / "model/config.json").write_text(json.dumps(config))
        found = check.Subject(release)
        there = {index: {**GPU, "uuid": f"GPU-{index}", "place": f"0000:0{1 + index}:00.0"} for index in range(gpus)}
        found.__dict__.update(_gpus=(there, ""), gpu_health=health or {}, gpu_links=links, _strays={})
        return found

    return make


def said(findings):
    """Findings as tuples of severity, message and repair."""
    return [(found["severity"], found["message"], found["repair"]) for found in findings]


def drop_in(root, lines, name="zz", folder="tiny.service.d"):
    folder = root / "systemd/system" / folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.conf").write_text(lines)
    return str(folder / f"{name}.conf")
