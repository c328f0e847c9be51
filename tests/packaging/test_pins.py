"""requirements-dev.txt holds a version of everything that pyproject.toml asks for, on every supported Python."""

from __future__ import annotations

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = [
    Requirement(line)
    for line in (ROOT / "requirements-dev.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_requirement_is_pinned(python: str) -> None:
    pinned = {
        canonicalize_name(pin.name): next(iter(pin.specifier)).version
        for pin in PINS
        if pin.marker is None or pin.marker.evaluate({"python_version": python})
    }
    wanted = [Requirement(line) for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]]
    unmet = [
        str(requirement)
        for requirement in wanted
        if not requirement.specifier.contains(pinned.get(canonicalize_name(requirement.name), "0"))
    ]
    assert unmet == []


def test_a_pin_is_an_exact_version_from_an_index() -> None:
    assert [str(pin) for pin in PINS if pin.url or [part.operator for part in pin.specifier] != ["=="]] == []
