"""A collection that does what a test says, in place of the real one, on the local host."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ACTION = """
import json, os, time
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        with open(os.environ["SERVEWRIGHT_PROGRESS"], "a") as stream:
            for entry in task_vars.get("fake_progress", []):
                stream.write(json.dumps(dict(entry, host=task_vars["inventory_hostname"])) + "\\n")
        if "fake_pid_file" in task_vars:
            with open(task_vars["fake_pid_file"], "w") as stream:
                stream.write(str(os.getpid()))
        time.sleep(float(task_vars.get("fake_sleep", 0)))
        str(task_vars.get("fake_secret"))
        size = int(task_vars.get("fake_size", 0))
        return result | task_vars.get("fake_result", {}) | {"padding": "x" * size, "environment": {
            name: os.environ.get(name) for name in task_vars.get("fake_environment", [])}}
"""
PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - servewright.llm.service:
"""


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Signals are heard, also where the tests were started in the background of a shell, which has SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes an inventory of the host gpu1 with these variables, for `servewright.llm.deploy`; gives its path."""
    root = tmp_path / "ansible_collections" / "servewright" / "llm"
    for name, text in {
        "galaxy.yml": "{namespace: servewright, name: llm, version: 0.0.1}",
        "playbooks/deploy.yml": PLAYBOOK,
        "plugins/action/service.py": ACTION,
        "plugins/modules/service.py": "DOCUMENTATION = 'module: service'",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "runtime").mkdir()
    monkeypatch.chdir(tmp_path)

    def write(**variables: Any) -> str:
        path = tmp_path / "hosts.yml"
        path.write_text(yaml.safe_dump({"all": {"hosts": {"gpu1": {"ansible_connection": "local", **variables}}}}))
        return str(path)

    return write
