"""The pages of docs/measured show what the records beside them say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servewright.nccl.measure import cases, choose, compare, record, table

MEASURED = Path(__file__).parents[3] / "docs" / "measured"
BLOCK = re.compile(
    r"<!-- (?P<record>\S+) (?P<what>\w+)(?: (?P<rest>[^>]*))? -->\n```text\n(?P<text>.*?)\n```", re.DOTALL
)


def render(folder: Path, name: str, what: str, rest: str) -> str:
    """times COLLECTIVE [CASE, ...] | against COLLECTIVE BASE [CASE, ...] | pairs COLLECTIVE CASE [CASE, ...] |
    effects PROFILE SIZE ...
    """
    read = record.read((folder / f"{name}.json").read_text(encoding="utf-8"))
    if what == "effects":
        profile, *sizes = rest.split()
        return table.effects(read, profile, at=[int(size) for size in sizes])
    summaries = compare.summarise(read.timings)
    collective, _, listed = rest.partition(" ")
    wanted = [word.strip() for word in listed.split(",") if word.strip()]
    if what == "pairs":
        return table.pairs(read.timings, collective, wanted[0], wanted[1:])
    if wanted:
        summaries = {key: summary for key, summary in summaries.items() if key[0] in wanted}
    return table.times(summaries, collective) if what == "times" else table.against(summaries, collective, wanted[0])


def _blocks() -> list[tuple[Path, re.Match[str]]]:
    return [
        (page, block)
        for page in sorted(MEASURED.glob("*.md"))
        for block in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def test_there_are_tables_to_check() -> None:
    assert len(_blocks()) >= 5


@pytest.mark.parametrize(("page", "block"), [pytest.param(p, b, id=f"{p.stem} {b[1]} {b[2]}") for p, b in _blocks()])
def test_a_table_follows_from_its_record(page: Path, block: re.Match[str]) -> None:
    shown = render(MEASURED, block["record"], block["what"], block["rest"] or "")
    assert block["text"] == "\n".join(line.rstrip() for line in shown.splitlines())


@pytest.mark.parametrize(
    "path",
    sorted(path for kind in ("nvlink", "p2p-disabled") for path in MEASURED.glob(f"*/{kind}/*.json")),
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_every_record_is_whole_right_and_names_no_host(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    read = record.read(text)
    assert read.raw["complete"]
    assert not read.rehearsal
    assert read.timings
    assert all(timing.correct for timing in read.timings)
    assert not re.search(r"/(home|root|tmp|work)/", text)


@pytest.mark.parametrize(
    "path",
    sorted(MEASURED.glob("*/*/tuned.csv")),
    ids=lambda path: f"{path.parents[1].name}/{path.parent.name}",
)
def test_a_tuned_table_follows_from_what_it_was_chosen_from(path: Path) -> None:
    """The finals where there are any, and the sweep before there were."""
    finals = path.with_name("finals.json")
    read = record.read((finals if finals.exists() else path.with_name("sweep.json")).read_text(encoding="utf-8"))
    summaries = compare.summarise(compare.levelled(read.timings) if finals.exists() else read.timings)
    candidates = [cases.Setting.read(name) for name in compare.cases(summaries)]
    again = choose.table(choose.bands(summaries, candidates, partial=finals.exists()), read.ranks)
    kept = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert "".join(kept[1:]) == again
