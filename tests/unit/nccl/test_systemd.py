from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from servewright.nccl import systemd

UNIT = """\
# A hand-written unit.
[Unit]
Description=vLLM
Environment=NCCL_NET=notservice
[Service]
Environment="NCCL_PROTO=LL" NCCL_ALGO=Ring 'NCCL_P2P_LEVEL=SYS'
Environment=NCCL_BUFFSIZE=16777216 \\
# inside a continuation
    NCCL_NTHREADS=512
Environment=NCCL_NTHREADS=256
EnvironmentFile=-/etc/default/vllm
ExecStart=-/opt/vllm/bin/vllm serve "my model" --tensor-parallel-size 8 \\
    --disable-custom-all-reduce
"""


def test_unit_environment() -> None:
    found = systemd.unit(UNIT, "vllm.service", {"/etc/default/vllm": "NCCL_ALGO=Tree # no comment\n"})
    assert {e.name: (e.value, str(e.origin)) for e in found.entries} == {
        "NCCL_PROTO": ("LL", "vllm.service:6"),
        "NCCL_P2P_LEVEL": ("SYS", "vllm.service:6"),
        "NCCL_BUFFSIZE": ("16777216", "vllm.service:7"),
        "NCCL_NTHREADS": ("256", "vllm.service:10"),
        "NCCL_ALGO": ("Tree # no comment", "/etc/default/vllm:1"),
    }
    assert found.files == []


def test_missing_environment_files_are_named() -> None:
    assert systemd.unit(UNIT, "vllm.service").files == ["-/etc/default/vllm"]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ("Environment=A=1\nEnvironment=\nEnvironment=B=2", {"B": "2"}),
        ("Environment=A=1 B=2\nUnsetEnvironment=A", {"B": "2"}),
        ("Environment=A=1 B=2\nUnsetEnvironment=A=3", {"A": "1", "B": "2"}),
        ("Environment=A=50%%", {"A": "50%"}),
        ("Environment=A=a#b ;c", {"A": "a#b"}),
        ("Environment=A= B", {"A": ""}),
        ("EnvironmentFile=x\nEnvironmentFile=", {}),
    ],
)
def test_unit_lines(lines: str, left: dict[str, str]) -> None:
    found = systemd.unit(f"[Service]\n{lines}\n", "u")
    assert {e.name: e.value for e in found.entries} == left


def test_command() -> None:
    words = ["/opt/vllm/bin/vllm", "serve", "my model", "--tensor-parallel-size", "8"]
    assert systemd.command(UNIT) == [*words, "--disable-custom-all-reduce"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b", ["a", "b"]),
        ("\"a b\"c 'd e'", ["a bc", "d e"]),
        ("''", [""]),
        (r"a\sb \x41 \101 \u00e9 \n", ["a b", "A", "A", "é", "\n"]),
        (r"a\'b", ["a'b"]),
        ("'open", ["open"]),
        (r"\q", [r"\q"]),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert systemd.words(text) == words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1\nB=2", {"A": "1", "B": "2"}),
        ("A=1\nA=2", {"A": "2"}),
        ("# A=1\n; A=2\nA=3 # 4", {"A": "3 # 4"}),
        (" A = 1 \n", {"A": "1"}),
        ("A=\"x y\"'z' w", {"A": "x yzw"}),
        ('A="one\ntwo"\nB=3', {"A": "one\ntwo", "B": "3"}),
        ("A=one\\\ntwo", {"A": "onetwo"}),
        (r'A="a\"b\$c\d"', {"A": r'a"b$c\d'}),
        ("A='it is \\n'", {"A": "it is \\n"}),
        ("A=b'c'", {"A": "b'c'"}),
        ("export A=1\nB", {}),
        ("A=", {"A": ""}),
    ],
)
def test_environment_file(text: str, found: dict[str, str]) -> None:
    assert {e.name: e.value for e in systemd.environment_file(text, "f")} == found


def test_environment_file_lines() -> None:
    entries = systemd.environment_file('A="1\n2"\n\nB=3\n', "f")
    assert [(e.name, e.origin.line) for e in entries] == [("A", 1), ("B", 4)]


def _library() -> ctypes.CDLL | None:
    for path in sorted(Path("/usr/lib").glob("**/systemd/libsystemd-shared-*.so")):
        try:
            library = ctypes.CDLL(str(path))
            library.load_env_file, library.extract_first_word  # noqa: B018
            return library
        except (OSError, AttributeError):
            continue
    return None


LIBRARY = _library()
needs_systemd = pytest.mark.skipif(LIBRARY is None, reason="systemd's own library is not installed")


@needs_systemd
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["A", "B", "=", " ", "\t", "\n", '"', "'", "\\", "#", ";", "$", "x", "n"])))
def test_environment_file_agrees_with_systemd(tmp_path: Path, parts: list[str]) -> None:
    text = "".join(parts)
    # Before systemd 254 a backslash at the end of a comment made the next line one too.
    assume(not re.search(r"[#;][^\n]*\\\n", text))
    file = tmp_path / "env"
    file.write_text(text)
    pairs = ctypes.POINTER(ctypes.c_char_p)()
    assert LIBRARY
    assert LIBRARY.load_env_file(None, str(file).encode(), ctypes.byref(pairs)) == 0
    expected: dict[str, str] = {}
    for raw in _strings(pairs):
        name, _, value = raw.partition("=")
        expected[name] = value
    found = {e.name: e.value for e in systemd.environment_file(text, "f")}
    assert found == {name: value for name, value in expected.items() if name.isidentifier()}


@needs_systemd
@given(st.lists(st.sampled_from(["a", "b", "=", " ", "\t", '"', "'", "\\", "\\n", "\\s", "\\x41", "\\101", "x"])))
def test_words_agree_with_systemd(parts: list[str]) -> None:
    text = "".join(parts)
    expected = _systemd_words(text)
    if expected is not None:  # systemd refuses what it cannot unquote; a reader shows what is there
        assert systemd.words(text) == expected


def _systemd_words(text: str) -> list[str] | None:
    assert LIBRARY
    cunescape, unquote = 1 << 1, 1 << 5
    extract: Callable[..., int] = LIBRARY.extract_first_word
    rest, word = ctypes.c_char_p(text.encode()), ctypes.c_char_p()
    found: list[str] = []
    while True:
        status = extract(ctypes.byref(rest), ctypes.byref(word), None, cunescape | unquote)
        if status <= 0:
            return found if status == 0 else None
        try:
            found.append((word.value or b"").decode())
        except UnicodeDecodeError:  # an escape that makes half a character
            return None


def _strings(pairs: ctypes._Pointer[ctypes.c_char_p]) -> list[str]:
    found: list[str] = []
    while pairs and pairs[len(found)] is not None:
        found.append(pairs[len(found)].decode())  # type: ignore[attr-defined]
    return found
