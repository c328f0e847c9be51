"""The record of rounds that were played, and the page that is made from it (docs/verdicts.md)."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.hosts.verdicts import ENGINES, KEEP, SCENARIOS

ROOT = Path(__file__).parents[2]
JUDGED = ("plugins/module_utils/host", "src/servewright", "templates", "tests/simulator", "tests/hosts/verdicts.py")

Case = tuple[str, str]
"""Name of a scenario, and engine."""


@dataclass(frozen=True)
class Played:
    """One round of a scenario: what was `wrong` ('': nothing), when it began, and the load of the machine then.

    `code` is the digest of the code that was judged.
    """

    name: str
    engine: str
    seed: int
    wrong: str
    time: str
    load: float
    code: str = ""


def code(root: Path = ROOT) -> str:
    """Digest of what the rounds judge and of what they play: they say nothing of any other."""
    found = hashlib.sha256()
    for top in JUDGED:
        path = root / top
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix != ".pyc":
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                found.update(f"{file.relative_to(root)} {content}\n".encode())
    return found.hexdigest()


class Record:
    """Rounds that were played. With a `path` also those of an earlier run of the same code, which are not played again
    if right."""

    def __init__(self, path: Path | None):
        self.path, self.rounds, self.code = path, list[Played](), code()
        if path is not None and path.exists():
            known = [Played(**json.loads(line)) for line in path.read_text().splitlines()]
            self.rounds = [one for one in known if one.code == self.code]

    def right(self, case: Case, seed: int) -> bool:
        """True when this round was played and came out right."""
        return any((one.name, one.engine, one.seed, one.wrong) == (*case, seed, "") for one in self.rounds)

    def add(self, case: Case, seed: int, began: float, wrong: str) -> None:
        """Write down a round, at once."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began))
        played = Played(*case, seed, wrong, moment, round(os.getloadavg()[0], 1), self.code)
        self.rounds.append(played)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(played)) + "\n")


HEAD = """\
# Verdicts

Made by `make verdicts`. Each engine of this table is a simulated one on a real systemd host, deployed with timings
drawn anew for each round; times are those of production, shortened some hundredfold. A cell is: right verdicts for the
right reason / rounds.

"""


def markdown(rounds: Sequence[Played]) -> str:
    """The page."""
    counts: dict[Case, tuple[int, int]] = {}
    for one in rounds:
        right, of = counts.get((one.name, one.engine), (0, 0))
        counts[one.name, one.engine] = (right + (not one.wrong), of + 1)
    lines = ["| the engine | deserves | SGLang | vLLM |", "|---|---|---|---|"]
    for name, scenario in SCENARIOS.items():
        verdict = "to be kept" if scenario.verdict == KEEP else "a rollback"
        cells = [_cell(counts, (name, engine)) for engine in ENGINES]
        lines.append(f"| {scenario.title} | {verdict} | {cells[0]} | {cells[1]} |")
    wrong = [one for one in rounds if one.wrong]
    lines += ["", f"{len(rounds)} rounds, {len(wrong)} wrong verdicts. {_circumstances(rounds)}"]
    lines += ["", *(f"- {one.name}, {one.engine}, {one.time}: {one.wrong}" for one in wrong)] if wrong else []
    return HEAD + "\n".join(lines) + "\n"


def _cell(counts: Mapping[Case, tuple[int, int]], case: Case) -> str:
    if case[1] not in SCENARIOS[case[0]].engines:
        return "does not apply"
    return "{} / {}".format(*counts[case]) if case in counts else "not run"


def _circumstances(rounds: Iterable[Played]) -> str:
    times, loads = sorted(one.time for one in rounds), [one.load for one in rounds]
    if not times:
        return ""
    return (
        f"Played from {times[0]} to {times[-1]} on {os.cpu_count()} cores, whose load average was "
        f"{statistics.median(loads):g} in the median and {max(loads):g} at most."
    )
