from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servewright.nccl import sources
from servewright.nccl.sources import Entry, Location

FILE = "/etc/nccl.conf"


@pytest.mark.parametrize(
    ("text", "nccl", "found"),
    [
        ("NCCL_PROTO=LL\n", None, [("NCCL_PROTO", "LL", 1)]),
        ("NCCL_PROTO = LL\n", None, [("NCCL_PROTO ", " LL", 1)]),
        ('NCCL_PROTO="LL"', None, [("NCCL_PROTO", '"LL"', 1)]),
        ("export NCCL_PROTO=LL", None, [("export NCCL_PROTO", "LL", 1)]),
        ("NCCL_SOCKET_IFNAME==eth0", None, [("NCCL_SOCKET_IFNAME", "=eth0", 1)]),
        ("NCCL_PROTO LL\n\nNCCL_ALGO=Ring ", None, [("NCCL_ALGO", "Ring ", 3)]),
        ("NCCL_DEBUG=\n", None, [("NCCL_DEBUG", "", 1)]),
        ("#NCCL_DEBUG=INFO\n", (2, 26, 2), []),
        ("#NCCL_DEBUG=INFO\n", (2, 25, 1), [("#NCCL_DEBUG", "INFO", 1)]),
        ("  #NCCL_DEBUG=INFO\n", (2, 30, 7), [("  #NCCL_DEBUG", "INFO", 1)]),
        ("NCCL_PROTO=LL\r\n", (2, 30, 7), [("NCCL_PROTO", "LL", 1)]),
        ("NCCL_PROTO=LL\r\n", (2, 28, 9), [("NCCL_PROTO", "LL\r", 1)]),
    ],
)
def test_conf_file(text: str, nccl: tuple[int, int, int] | None, found: list[tuple[str, str, int]]) -> None:
    entries = sources.conf_file(text, FILE, nccl)
    assert [(e.name, e.value, e.origin.line) for e in entries] == found


def test_environ_keeps_newlines_and_the_first_of_two() -> None:
    data = b"A=1\0NCCL_DEBUG=IN\nFO\0A=2\0junk\0"
    assert [(e.name, e.value) for e in sources.environ(data, "/proc/7/environ")] == [
        ("A", "1"),
        ("NCCL_DEBUG", "IN\nFO"),
    ]


@given(st.binary(max_size=200))
def test_environ_never_fails(data: bytes) -> None:
    assert all(entry.name or entry.value is not None for entry in sources.environ(data, "x"))


def test_precedence_and_origin() -> None:
    user = sources.conf_file("NCCL_PROTO=Simple\nNCCL_ALGO=Tree\nNCCL_ALGO=Ring\n", "/root/.nccl.conf")
    etc = sources.conf_file("NCCL_PROTO=LL\nNCCL_ALGO=NVLS\nNCCL_NTHREADS=64\n", FILE)
    chosen = sources.effective([Entry("NCCL_PROTO", "LL128", Location("process"))], user, etc)
    assert {name: (entry.value, str(entry.origin)) for name, entry in chosen.items()} == {
        "NCCL_PROTO": ("LL128", "process"),
        "NCCL_ALGO": ("Tree", "/root/.nccl.conf:2"),  # the first line of a name
        "NCCL_NTHREADS": ("64", "/etc/nccl.conf:3"),
    }


def test_an_empty_variable_hides_the_files() -> None:
    etc = [Entry("NCCL_PROTO", "LL", Location(FILE, 1))]
    empty = [Entry("NCCL_PROTO", "", Location("process"))]
    assert sources.effective(empty, (), etc)["NCCL_PROTO"].value == ""
