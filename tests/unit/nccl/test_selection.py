from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servewright.nccl import selection
from servewright.nccl.facts import Facts

OLD, NOW, NEXT = (2, 22, 3), (2, 28, 9), (2, 31, 2)
PCIE = Facts(interconnect="pcie")
OTHERS = ["Broadcast", "Reduce", "AllGather", "ReduceScatter"]


@pytest.mark.parametrize(
    ("text", "nccl", "on"),
    [
        ("LL", NOW, {"LL"}),
        ("ll,simple", NOW, {"LL", "Simple"}),
        ("^LL", NOW, {"LL128", "Simple"}),
        ("^LL128", NOW, {"LL", "Simple"}),
        ("LL,Simple;allreduce:^LL", NOW, {"LL128", "Simple"}),
        ("allgather:LL", NOW, {"LL", "LL128", "Simple"}),
        ("", NOW, {"LL", "LL128", "Simple"}),
        ("LL,typo", OLD, {"LL"}),
    ],
)
def test_what_all_reduce_may_use(text: str, nccl: tuple[int, int, int], on: set[str]) -> None:
    states = selection.read("NCCL_PROTO", text, nccl).states["AllReduce"]
    assert {word for word, state in states.items() if state != "off"} == on


@pytest.mark.parametrize(
    ("variable", "text", "nccl", "kinds"),
    [
        ("NCCL_PROTO", "LL", NOW, []),
        ("NCCL_PROTO", "LL64", NOW, ["word"]),
        ("NCCL_PROTO", " LL", NOW, ["word"]),
        ("NCCL_ALGO", "ring;allreduce:^tree", NOW, []),
        ("NCCL_ALGO", "ring;allreduce:^tree", OLD, ["form", "word"]),
        ("NCCL_ALGO", "alltoall:ring", NOW, ["collective"]),
        ("NCCL_ALGO", "ring;tree", NOW, ["order"]),
        ("NCCL_ALGO", "PAT", OLD, ["word"]),
        ("NCCL_ALGO", "PAT", NOW, []),
    ],
)
def test_problems(variable: str, text: str, nccl: tuple[int, int, int], kinds: list[str]) -> None:
    found = selection.read(variable, text, nccl).problems  # type: ignore[arg-type]
    assert [problem.kind for problem in found] == kinds


def test_the_nearest_word_is_offered() -> None:
    assert selection.read("NCCL_ALGO", "Rings", NOW).problems[0].nearest == "Ring"


@pytest.mark.parametrize(
    ("algo", "proto", "nccl", "facts", "left"),
    [
        ("Ring", "LL", NOW, PCIE, []),
        ("Tree", None, NOW, PCIE, OTHERS),
        ("Tree", None, OLD, PCIE, []),  # falls back to Ring
        ("allreduce:tree", None, NEXT, PCIE, []),
        ("allreduce:tree", "Simple", NOW, PCIE, []),
        ("allreduce:tree", "Simple", NEXT, PCIE, OTHERS),
        ("ring,tree;allreduce:tree", "Simple", NEXT, PCIE, []),
        ("NVLS", None, NOW, PCIE, [*OTHERS, "AllReduce"]),
        ("NVLS", None, NOW, Facts(interconnect="nvlink"), ["Broadcast", "Reduce"]),
        ("NVLS,Ring", "LL", NOW, Facts(interconnect="nvlink"), []),
        (None, "LL128", NOW, PCIE, []),
        (None, "LL128", NEXT, PCIE, [*OTHERS, "AllReduce"]),
        (None, None, NOW, PCIE, []),
    ],
)
def test_collectives_left_without_a_way_to_run(
    algo: str | None, proto: str | None, nccl: tuple[int, int, int], facts: Facts, left: list[str]
) -> None:
    assert selection.stranded(algo, proto, nccl, facts, collnet=False) == left


@given(
    st.text(alphabet="LRSing128tree,;:^ ", max_size=30),
    st.sampled_from(["NCCL_ALGO", "NCCL_PROTO"]),
    st.sampled_from([OLD, NOW, NEXT]),
)
def test_any_text_is_read(text: str, variable: str, nccl: tuple[int, int, int]) -> None:
    result = selection.read(variable, text, nccl)  # type: ignore[arg-type]
    assert set(result.states) == set(selection.rules().collectives)
