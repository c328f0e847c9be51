"""What is published: everything that is needed and nothing else."""

from __future__ import annotations

import json
import tarfile
import zipfile
from pathlib import Path

from tests.packaging.conftest import Artefacts

IN_WHEEL = "ansible_collections/servewright/llm/"
COLLECTION_FOLDERS = {"meta", "playbooks", "plugins", "roles", "templates"}
COLLECTION_FILES = {"CHANGELOG.md", "LICENSE", "README.md"}


def files_of_tar(path: Path) -> set[str]:
    with tarfile.open(path) as tar:
        return {member.name for member in tar if not member.isdir()}


def files_of_wheel(path: Path) -> set[str]:
    return set(zipfile.ZipFile(path).namelist())


def collection_of_wheel(path: Path) -> set[str]:
    return {name.removeprefix(IN_WHEEL) for name in files_of_wheel(path) if name.startswith(IN_WHEEL)}


def top(names: set[str]) -> set[str]:
    return {name.partition("/")[0] for name in names}


def test_the_collection_is_complete(artefacts: Artefacts) -> None:
    expected = {
        str(path.relative_to(artefacts.checkout))
        for part in COLLECTION_FOLDERS | COLLECTION_FILES
        for path in [artefacts.checkout / part, *(artefacts.checkout / part).rglob("*")]
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected - files_of_tar(artefacts.collection) == set()


def test_the_collection_has_nothing_else(artefacts: Artefacts) -> None:
    published = files_of_tar(artefacts.collection)
    assert top(published) <= COLLECTION_FOLDERS | COLLECTION_FILES | {"MANIFEST.json", "FILES.json"}
    assert not [name for name in published if "__pycache__" in name or name.endswith(".pyc")]


def test_the_wheel_carries_the_same_collection(artefacts: Artefacts) -> None:
    # Galaxy's client writes the two lists from galaxy.yml; a wheel has the original.
    from_galaxy = files_of_tar(artefacts.collection) - {"MANIFEST.json", "FILES.json"}
    assert collection_of_wheel(artefacts.wheel) - {"galaxy.yml"} == from_galaxy


def test_the_wheel_has_nothing_else(artefacts: Artefacts) -> None:
    published = files_of_wheel(artefacts.wheel)
    assert {name for name in top(published) if not name.endswith(".dist-info")} == {
        "ansible_collections",
        "servewright",
    }
    assert not [name for name in published if "__pycache__" in name]
    assert "servewright/py.typed" in published


def test_the_sdist_builds_the_same_wheel(artefacts: Artefacts) -> None:
    assert artefacts.wheel_from_sdist.name == artefacts.wheel.name
    assert artefacts.wheel_from_sdist.read_bytes() == artefacts.wheel.read_bytes()


def test_the_sdist_has_no_tests_and_no_tools(artefacts: Artefacts) -> None:
    inside = {name.partition("/")[2] for name in files_of_tar(artefacts.sdist)}
    tools = {".gitignore", "PKG-INFO", "galaxy.yml", "hatch_build.py", "pyproject.toml", "src"}
    assert top(inside) <= COLLECTION_FOLDERS | COLLECTION_FILES | tools
    assert not [name for name in inside if "__pycache__" in name]


def test_package_and_collection_have_one_version(artefacts: Artefacts) -> None:
    with tarfile.open(artefacts.collection) as tar:
        manifest = tar.extractfile("MANIFEST.json")
        assert manifest is not None
        version = json.load(manifest)["collection_info"]["version"]
    assert artefacts.wheel.name.startswith(f"servewright-{version}-")
    assert artefacts.collection.name == f"servewright-llm-{version}.tar.gz"
