from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servewright.nccl import reading


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("16777216", 16777216),
        ("16M", 16),
        ("016", 14),
        ("08", 0),
        ("0x10", 16),
        ("0x", 0),
        ("true", 0),
        (" 7", 7),
        ("-2", -2),
        ("", None),
        ("9223372036854775808", None),
    ],
)
def test_integers_are_read_as_nccl_reads_them(text: str, number: int | None) -> None:
    assert reading.integer(text) == number


@given(st.text(alphabet="0123456789abcfxXMkK+- \t_.,", max_size=12).filter(lambda t: not _binary(t)))
def test_integer_agrees_with_the_c_library(text: str) -> None:
    """NCCL calls strtoll of the C library, so the C library is the judge."""
    library = ctypes.CDLL(None)
    library.strtoll.restype = ctypes.c_longlong
    if text:
        assert reading.integer(text) == library.strtoll(text.encode(), None, 0)
    else:
        assert reading.integer(text) is None


def _binary(text: str) -> bool:
    """Newer C libraries also read 0b101; NCCL's users do not write it."""
    return "0b" in text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("16M", 16777216),
        ("64 MiB", 67108864),
        ("4k", 4096),
        ("016", 16),
        ("true", 1),
        ("off", 0),
        ('"16"', 16),
        ("1_048_576", 1048576),
        ("lots", None),
    ],
)
def test_what_a_person_meant(text: str, number: int | None) -> None:
    assert reading.meant(text) == number
