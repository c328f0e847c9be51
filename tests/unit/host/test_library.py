"""The zipapp on the host: byte code spares the interpreter the work, and never stands for another source."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import files, library, paths

LOOK = """
import sys
compiled = set()
sys.addaudithook(lambda event, arguments: event == "compile" and compiled.add(arguments[1]))
sys.path.insert(0, sys.argv[1])
from servewright_host import api, errors
print(len([name for name in compiled if name and "servewright_host" in str(name)]), getattr(errors, "EDITED", None))
"""


def look(path: Path) -> list[str]:
    """How many modules an interpreter had to compile, and what an edit of one left in it."""
    done = subprocess.run([sys.executable, "-I", "-c", LOOK, path], capture_output=True, text=True, check=True)
    return done.stdout.split()


def changed(path: Path, change) -> Path:
    """A copy of the zipapp with `change(name, content)` for content."""
    target = path.with_name("changed.pyz")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as copy:
        for entry in source.infolist():
            copy.writestr(entry, change(entry.filename, source.read(entry)))
    return target


@pytest.fixture(scope="module")
def data():
    return library.pack()


@pytest.fixture
def packed(tmp_path, data):
    path = tmp_path / "host.pyz"
    path.write_bytes(data)
    return path


def test_nothing_is_compiled_when_a_command_starts(packed):
    assert look(packed) == ["0", "None"]


def test_an_edited_source_is_what_runs(packed):
    edited = changed(packed, lambda name, data: data + b"\nEDITED = 1\n" if name.endswith("/errors.py") else data)
    assert look(edited) == ["1", "1"]


def test_another_interpreter_takes_the_sources(packed):
    other = changed(packed, lambda name, data: b"\0\0" + data[2:] if name.endswith(".pyc") else data)
    assert int(look(other)[0]) > 50


def test_what_is_packed_from_the_zipapp_is_the_same(packed):
    again = "import sys; sys.path.insert(0, sys.argv[1]); from servewright_host import library; " \
            "sys.stdout.buffer.write(library.pack())"  # fmt: skip
    done = subprocess.run([sys.executable, "-I", "-c", again, packed], capture_output=True, check=True)
    first, second = (zipfile.ZipFile(io.BytesIO(data)) for data in (packed.read_bytes(), done.stdout))
    assert first.namelist() == second.namelist()
    sources = [name for name in first.namelist() if name.endswith(".py")]
    assert [name for name in sources if first.read(name) != second.read(name)] == []


@pytest.mark.parametrize("damage", ["missing", "not a zip", "another source", "another interpreter", "no"])
def test_what_is_not_as_it_should_be_is_written_again(packed, root, monkeypatch, damage):
    monkeypatch.setattr(paths, "HOST_PYZ", str(packed))
    monkeypatch.setattr(files, "reserve", lambda: None)
    monkeypatch.setattr(library, "RECOVER_UNITS", {})
    if damage == "missing":
        packed.unlink()
    elif damage == "not a zip":
        packed.write_bytes(packed.read_bytes()[:1000])
    elif damage == "another source":
        changed(packed, lambda name, data: data + (b"#" if name.endswith("/api.py") else b"")).rename(packed)
    elif damage == "another interpreter":
        changed(packed, lambda name, data: data).rename(packed)  # the copy has lost the mark of the interpreter
    assert library.install() == (damage != "no")
    assert library.install() is False
    assert look(packed) == ["0", "None"]


def test_what_was_edited_is_told_from_what_another_version_wrote(packed, root, monkeypatch):
    monkeypatch.setattr(paths, "HOST_PYZ", str(packed))
    monkeypatch.setattr(files, "reserve", lambda: None)
    monkeypatch.setattr(library, "systemd", SimpleNamespace(enable=lambda unit: None, daemon_reload=lambda: None))
    units = [f"{paths.UNITS}/{name}" for name in library.RECOVER_UNITS]
    assert library.edited() == dict.fromkeys(units, "missing")
    library.install()
    assert library.edited() == {}

    monkeypatch.setattr(library, "RECOVER_UNITS", dict.fromkeys(library.RECOVER_UNITS, "another"))
    assert library.edited() == {}
    files.write(units[0], "edited")
    files.write(str(packed), b"replaced")
    assert library.edited() == {str(packed): "edited", units[0]: "edited"}
    files.write(paths.installed(), "damaged, or of a version that kept none")
    assert library.edited() == {}
