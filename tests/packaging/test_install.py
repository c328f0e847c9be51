"""Each artefact, installed into a fresh environment, lets Ansible find the playbooks by their full name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT, Artefacts, Environment

PLAYBOOK = "servewright.llm.validate"
COLLECTION = Path("ansible_collections", "servewright", "llm")
DESCRIBE = "import json; from servewright import artefact; artefact.check(); print(json.dumps(artefact.describe()))"
TEMPLATES = "from servewright import artefact; print(*sorted((artefact.collection_root() / 'templates').iterdir()))"

MakeEnvironment = Callable[..., Environment]


def described(environment: Environment) -> dict[str, str]:
    done = environment.run("-c", DESCRIBE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def from_wheel(artefacts: Artefacts, environment: MakeEnvironment) -> Environment:
    """As a user installs it: the declared dependencies, and nothing from the development tools."""
    return environment("--constraint", ROOT / "requirements-dev.txt", artefacts.wheel, borrow=False)


def test_a_wheel_brings_the_collection(from_wheel: Environment) -> None:
    assert f"{from_wheel.site_packages / COLLECTION}/playbooks/validate.yml" in from_wheel.list_tasks(PLAYBOOK)


def run_playbook(environment: Environment, artefacts: Artefacts, **variables: str) -> str:
    words = ("-m", "ansible", "playbook", PLAYBOOK, "-i", artefacts.checkout / "inventory", "-v")
    done = environment.run(*words, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed=0" in done.stdout
    return done.stdout


def test_a_wheel_runs_a_playbook(from_wheel: Environment, artefacts: Artefacts) -> None:
    assert '"verdict": "ok"' in run_playbook(from_wheel, artefacts)


def test_a_wheel_runs_a_command(from_wheel: Environment, artefacts: Artefacts) -> None:
    servewright = from_wheel.python.with_name("servewright")
    found = json.loads(from_wheel.run(servewright, "version", "--json").stdout)
    assert found["collection_path"] == str(from_wheel.site_packages / COLLECTION)
    done = from_wheel.run(servewright, "validate", "--inventory", artefacts.checkout / "inventory")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wheel_brings_its_dependencies(from_wheel: Environment) -> None:
    every_module = (
        "import pkgutil, importlib, servewright\n"
        "for module in pkgutil.walk_packages(servewright.__path__, 'servewright.'):\n"
        "    if not module.name.endswith('__main__'): importlib.import_module(module.name)\n"
    )
    done = from_wheel.run("-c", every_module)
    assert done.returncode == 0, done.stderr


def test_an_installed_copy_says_so(from_wheel: Environment) -> None:
    found = described(from_wheel)
    assert found["mode"] == "installed"
    assert found["package_path"] == str(from_wheel.site_packages / "servewright")
    assert found["collection_path"] == str(from_wheel.site_packages / COLLECTION)
    assert found["collection_version"] == found["version"]
    assert str(from_wheel.site_packages / COLLECTION / "templates") in from_wheel.run("-c", TEMPLATES).stdout


def test_galaxy_lists_the_collection_of_a_wheel_with_its_version(from_wheel: Environment) -> None:
    listed = from_wheel.run("-m", "ansible", "galaxy", "collection", "list", "--format", "json")
    collections = json.loads(listed.stdout)[str(from_wheel.site_packages / "ansible_collections")]
    assert collections["servewright.llm"]["version"] == described(from_wheel)["version"]


def test_an_sdist_brings_the_collection(artefacts: Artefacts, environment: MakeEnvironment) -> None:
    made = environment(artefacts.sdist, borrow=True)
    assert f"{made.site_packages / COLLECTION}/playbooks/validate.yml" in made.list_tasks(PLAYBOOK)
    assert described(made)["mode"] == "installed"
    assert '"verdict": "ok"' in run_playbook(made, artefacts)


def test_the_collection_runs_a_playbook_beside_the_package(
    artefacts: Artefacts, from_wheel: Environment, tmp_path: Path
) -> None:
    install = ("collection", "install", "--offline", "--force", artefacts.collection, "-p", tmp_path)
    assert from_wheel.run("-m", "ansible", "galaxy", *install).returncode == 0
    found = from_wheel.list_tasks(PLAYBOOK, ANSIBLE_COLLECTIONS_PATH=str(tmp_path))
    assert f"{tmp_path / COLLECTION}/playbooks/validate.yml" in found
    assert '"verdict": "ok"' in run_playbook(from_wheel, artefacts, ANSIBLE_COLLECTIONS_PATH=str(tmp_path))


def test_the_collection_alone_says_what_is_missing(
    artefacts: Artefacts, environment: MakeEnvironment, tmp_path: Path
) -> None:
    made = environment(borrow=True)
    install = ("collection", "install", "--offline", artefacts.collection, "-p", tmp_path)
    assert made.run("-m", "ansible", "galaxy", *install).returncode == 0
    found = made.list_tasks(PLAYBOOK, ANSIBLE_COLLECTIONS_PATH=str(tmp_path))
    assert f"{tmp_path / COLLECTION}/playbooks/validate.yml" in found

    playbook = ("-m", "ansible", "playbook", PLAYBOOK, "-i", artefacts.checkout / "inventory")
    done = made.run(*playbook, ANSIBLE_COLLECTIONS_PATH=str(tmp_path))
    assert done.returncode == 2
    assert "the Python package servewright is not importable" in done.stdout + done.stderr


def test_an_editable_install_is_live(artefacts: Artefacts, environment: MakeEnvironment) -> None:
    made = environment("--editable", artefacts.checkout, borrow=True)
    found = described(made)
    assert found["mode"] == "editable"
    assert Path(found["collection_path"]).resolve() == artefacts.checkout

    edited = artefacts.checkout / "playbooks" / "just_written.yml"
    edited.write_text("- hosts: all\n  tasks:\n    - name: A new task\n      ansible.builtin.meta: noop\n")
    try:
        assert "A new task" in made.list_tasks("servewright.llm.just_written")
    finally:
        edited.unlink()


def test_an_older_copy_that_ansible_prefers_is_refused(
    artefacts: Artefacts, from_wheel: Environment, tmp_path: Path
) -> None:
    shadow = tmp_path / COLLECTION
    shadow.mkdir(parents=True)
    (shadow / "galaxy.yml").write_text("namespace: servewright\nname: llm\nversion: 0.0.1\n")
    done = from_wheel.run("-c", DESCRIBE, ANSIBLE_COLLECTIONS_PATH=str(tmp_path))
    assert done.returncode != 0
    message = done.stderr.splitlines()[-1]
    assert "ArtefactError" in message
    assert f"0.0.1 at {shadow}" in message
