"""artefact finds the collection where Ansible finds it, whatever Ansible is told about its folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BOTH = """
import json
from servewright import artefact
ours = artefact.ansible_collection()
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader()
import ansible_collections.servewright.llm as found
print(json.dumps([str(ours), str(found.__path__[0])]))
"""


def collection_in(folder: Path, version: str = "0.0.1") -> None:
    path = folder / "ansible_collections" / "servewright" / "llm"
    path.mkdir(parents=True)
    (path / "galaxy.yml").write_text(f"namespace: servewright\nname: llm\nversion: {version}\n")


# Name of the case: variables, text of ansible.cfg in the working folder (or None), where it is found.
# {0} is the folder of the case, in which home, cwd, first and second lie; second has no collection.
CASES: dict[str, tuple[dict[str, str], str | None, str]] = {
    "default": ({}, None, "home/.ansible/collections"),
    "variable": ({"ANSIBLE_COLLECTIONS_PATH": "{0}/second:{0}/first"}, None, "first"),
    "variable, with the last folder": ({"ANSIBLE_COLLECTIONS_PATH": "{0}/first/ansible_collections"}, None, "first"),
    "variable, unknown user": ({"ANSIBLE_COLLECTIONS_PATH": "~nobody-here/x:{0}/first"}, None, "first"),
    "variable before file": ({"ANSIBLE_COLLECTIONS_PATH": "{0}/first"}, "collections_path = ~/mine", "first"),
    "file, relative to itself": ({}, "collections_path = ../first", "first"),
    "file, working folder": ({}, "collections_path = {{{{CWD}}}}/../first", "first"),
    "file, with variable and comment": ({"WHERE": "{0}/first"}, "collections_path = $WHERE ; shared", "first"),
    "file, quoted, which Ansible takes as it stands": ({}, "collections_path = '{0}/first'", "pythonpath"),
    "file, with percent sign": ({}, "collections_path = {0}/first\nlog_path = %(x)", "first"),
    "variable, other home": ({"ANSIBLE_HOME": "{0}/otherhome"}, None, "otherhome/collections"),
    "named file": ({"ANSIBLE_CONFIG": "{0}/etc/named.cfg"}, "collections_path = ~/mine", "first"),
    "named folder": ({"ANSIBLE_CONFIG": "{0}/etc"}, None, "first"),
    "beside the package": ({"ANSIBLE_COLLECTIONS_PATH": "{0}/second"}, None, "pythonpath"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_ansible(case: str, tmp_path: Path) -> None:
    variables, config, where = CASES[case]
    folders = ("home/.ansible/collections", "home/mine", "first", "otherhome/collections", "pythonpath")
    for folder in folders:
        collection_in(tmp_path / folder)
    for folder in ("cwd", "second", "etc"):
        (tmp_path / folder).mkdir()
    for name in ("named.cfg", "ansible.cfg"):
        (tmp_path / "etc" / name).write_text(f"[defaults]\ncollections_path = {tmp_path}/first\n")
    if config is not None:
        (tmp_path / "cwd" / "ansible.cfg").write_text(f"[defaults]\n{config.format(tmp_path)}\n")

    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", BOTH],
        cwd=tmp_path / "cwd",
        env=inherited
        | {"HOME": f"{tmp_path}/home", "PYTHONPATH": f"{tmp_path}/pythonpath"}
        | {name: value.format(tmp_path) for name, value in variables.items()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ours, ansibles = (os.path.realpath(path) for path in json.loads(done.stdout))
    expected = os.path.realpath(tmp_path / where / "ansible_collections" / "servewright" / "llm")
    assert ansibles == expected
    assert ours == expected
