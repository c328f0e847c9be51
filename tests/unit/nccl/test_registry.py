from __future__ import annotations

import pytest

from servewright.nccl import registry
from servewright.nccl.registry import Variable

VARIABLES = registry.variables()


def test_covers_the_user_guide_and_what_it_leaves_out() -> None:
    documented = [v for v in VARIABLES.values() if v.documented and v.component == "nccl"]
    assert len(documented) >= 118
    assert {"NCCL_LL_BUFFSIZE", "NCCL_GRAPH_FILE", "NCCL_IGNORE_DISABLED_P2P"} <= VARIABLES.keys()


@pytest.mark.parametrize("variable", VARIABLES.values(), ids=lambda v: v.name)
def test_every_entry_is_complete(variable: Variable) -> None:
    assert variable.meaning.endswith(".")
    assert variable.sources
    assert variable.acts_on
    assert variable.since or variable.component != "nccl"
    if variable.replaced_by:
        assert variable.replaced_by in VARIABLES
    if variable.type in {"word", "words", "level", "boolean"}:
        assert variable.values
    assert all(change.since >= (variable.since or (0, 0, 0)) for change in variable.changes)


@pytest.mark.parametrize("override", registry.overrides(), ids=lambda o: f"{o.engine}-{o.variable}-{o.when}")
def test_overrides_name_known_variables(override: registry.Override) -> None:
    assert override.variable in VARIABLES


@pytest.mark.parametrize(
    ("nccl", "name", "field", "expected"),
    [
        ((2, 24, 3), "NCCL_MAX_CTAS", "maximum", 32),
        ((2, 25, 1), "NCCL_MAX_CTAS", "maximum", 64),
        ((2, 22, 3), "NCCL_IB_TIMEOUT", "default", "18"),
        ((2, 23, 4), "NCCL_IB_TIMEOUT", "default", "20"),
        ((2, 30, 4), "NCCL_DEBUG_SUBSYS", "unknown", "ignored"),
        ((2, 30, 7), "NCCL_DEBUG_SUBSYS", "unknown", "default"),
        ((2, 22, 3), "NCCL_P2P_LEVEL", "default", "SYS on AMD processors, PXB on Intel and Arm"),
    ],
)
def test_a_version_has_its_own_rules(nccl: tuple[int, int, int], name: str, field: str, expected: object) -> None:
    assert getattr(VARIABLES[name].at(nccl), field) == expected


def test_undocumented_levels_come_with_their_version() -> None:
    level = VARIABLES["NCCL_P2P_LEVEL"]
    assert "C2C" not in level.words((2, 25, 1))
    assert "C2C" in level.words((2, 26, 2))
    assert level.words((2, 18, 1))[:6] == ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("NCCL_P2P_LVL", "NCCL_P2P_LEVEL"),
        ("NCCL_BUFFERSIZE", "NCCL_BUFFSIZE"),
        ("nccl_proto ", "NCCL_PROTO"),
        ("NCCL_ZZZZZZZZ", None),
    ],
)
def test_nearest_name(wrong: str, right: str | None) -> None:
    assert registry.nearest(wrong) == right


def test_the_six_are_tuning_of_last_resort_in_the_guide() -> None:
    six = [
        "NCCL_PROTO",
        "NCCL_ALGO",
        "NCCL_P2P_LEVEL",
        "NCCL_MAX_NCHANNELS",
        "NCCL_BUFFSIZE",
        "NCCL_NTHREADS",
    ]
    assert {VARIABLES[name].section for name in six} == {"debugging"}
