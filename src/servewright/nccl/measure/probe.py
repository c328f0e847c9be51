"""Times NCCL collectives on this host under given environments, and checks their results.

The process that reads the request imports torch and never touches a GPU; each rank of each case is a fork of it. So a
case costs no import of torch, and a rank that hangs in the driver takes nothing else with it. What is left of a
start, CUDA and the communicator, a gang shares: its ranks start together, and idle until theirs is the turn.

A result is one JSON object: what the host and the library are, and for each case the times per collective and size,
or a diagnosis with a name and what to do.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from . import host, ranks
from .cases import HELD, TABLE, Case, Job
from .diagnosis import diagnosis
from .forks import Followed, Start, fork, hear

Json = dict[str, Any]

SCHEMA = "servewright.nccl.probe/1"
FACTS_TIMEOUT = 90.0
TAIL = 4000
"""Characters of what a rank printed last that are kept for a diagnosis."""


def explain(start: Start, log: Path, facts: Json) -> Json:
    """The diagnosis of a case whose ranks were not all done."""
    forks, late = start.forks, start.late
    words = host.content(log)[-TAIL:].strip()
    errors = [one.last("error") for one in forks if one.last("error")]
    crashes = sorted({f"a rank ended by {one.ended_by()}" for one in forks if one.ended_by() and one.pid not in late})
    stages = sorted({str(one.last("stage", "not started")) for one in forks if not one.last("done", False)})
    detail = "; ".join([f"stage: {', '.join(stages)}", *crashes, *errors[:1]]) + (f"\n{words}" if words else "")
    text = detail.lower()
    if start.stuck:
        return diagnosis("unkillable", detail)
    if "out of memory" in text:
        return diagnosis("out-of-memory", detail)
    if "no algorithm/protocol available" in text:
        return diagnosis("no-algorithm", detail)
    if "wrong data in the first" in text:
        return diagnosis("wrong-data", detail)
    if errors or crashes or not late:
        return diagnosis("initialisation-failed" if stages[0] == "starting" else "rank-failed", detail)
    if "starting" in stages:
        return diagnosis("initialisation-hang", detail)
    if "initialised" in stages:
        return diagnosis("first-collective-hang", f"{host.iommu_words(facts)}; {detail}")
    return diagnosis("hang", detail)


def held() -> dict[str, str]:
    """What whoever starts the probe has set of what holds in every case."""
    return {variable: os.environ[variable] for variable in HELD if variable in os.environ}


def case_environment(case: Case, folder: Path) -> dict[str, str]:
    # The environment of whoever starts the probe must not change what is measured, but for what is held.
    environment = {key: text for key, text in os.environ.items() if not key.startswith("NCCL_")}
    environment |= {**held(), **case.environment}
    for variable, text in case.files.items():
        path = folder / variable
        path.write_text(text, encoding="utf-8")
        environment[variable] = str(path)
    environment.setdefault("NCCL_DEBUG", "WARN")  # to standard output, kept for a diagnosis
    return environment


def bus_factor(collective: str, size: int) -> float:
    """How often a byte of the message crosses the slowest link, as nccl-tests defines bus bandwidth."""
    return (2 if collective == "all_reduce" else 1) * (size - 1) / size


def results_of(forks: Sequence[Followed], trial: str | None) -> list[Json]:
    """One row per collective and size: a call lasts as long as on its slowest rank."""
    rows = []
    for message in forks[0].messages:
        if "times" not in message or message["trial"] != trial:
            continue
        key = (message["collective"], message["size"], trial)
        same = [
            other
            for one in forks
            for other in one.messages
            if "times" in other and (other["collective"], other["size"], other["trial"]) == key
        ]
        if len(same) < len(forks):
            continue
        times = [max(column) for column in zip(*(other["times"] for other in same))]
        median = ranks.quantile(times, 0.5)
        wrong = sum(other["wrong"] for other in same)
        bandwidth = message["bytes"] / median / 1e3 * bus_factor(message["collective"], len(forks))
        rows.append(
            {
                "collective": message["collective"],
                "bytes": message["bytes"],
                "median_us": round(median, 3),
                "p10_us": round(ranks.quantile(times, 0.1), 3),
                "p90_us": round(ranks.quantile(times, 0.9), 3),
                "bus_gb_per_s": round(bandwidth, 3),
                "correct": wrong == 0,
                "wrong_elements": wrong,
                "calls": message["calls"],
                "repeats": len(times),
            }
        )
    return rows


class Run:
    """One case: its folder, its ranks and what came of it."""

    def __init__(self, torch: Any, job: Job, case: Case) -> None:
        self.job, self.case = job, case
        self.folder = Path(tempfile.mkdtemp(prefix="nccl-probe-"))
        self.log = self.folder / "log"
        self.seconds = 0.0
        environment = case_environment(case, self.folder)
        works = [partial(ranks.rank_main, torch, job, case, rank, self.folder) for rank in range(job.ranks)]
        self.start = Start([fork(work, environment, self.log) for work in works])

    def turn(self) -> None:
        """Have it measured, if it is ready; what is not done by then is killed at once."""
        began = time.monotonic()
        if self.start.said("ready"):
            self.start.go_on()
            hear([self.start], "done", self.job.timeout)
        if not self.start.said("done"):
            self.start.kill()
        self.seconds += time.monotonic() - began

    def entries(self, facts: Json) -> list[Json]:
        """The case as it goes into the result: one entry, or one for each trial."""
        case, forks = self.case, self.start.forks
        names: list[str | None] = [*case.trials] or [None]
        rows = {name: results_of(forks, name) for name in names}
        every = [row for listed in rows.values() for row in listed]
        found = None
        if not self.start.said("done"):
            found = explain(self.start, self.log, facts)
        elif not all(row["correct"] for row in every):
            first = next(row for row in every if not row["correct"])
            found = diagnosis(
                "wrong-data",
                f"{first['collective']} of {first['bytes']} bytes: {first['wrong_elements']} wrong elements",
            )
        elif any(one.last("unsupported") for one in forks):
            found = diagnosis("unsupported", forks[0].last("unsupported"), stops=False)
        return [
            {
                "name": name or case.name,
                "round": case.round,
                "environment": dict(case.environment),
                "files": {**case.files, TABLE: case.trials[name].table} if name else dict(case.files),
                # As the ranks had it, less the paths of this run.
                "effective": {
                    key: "(file)" if key in case.files or key == TABLE else text
                    for key, text in (forks[0].last("environment") or {}).items()
                },
                "status": "failed" if found and found["stops"] else "measured",
                "diagnosis": found,
                "seconds": round(self.seconds / len(names), 2),
                "results": rows[name],
            }
            for name in names
        ]


def run_gang(torch: Any, job: Job, cases: Sequence[Case], facts: Json) -> list[Json]:
    """Cases whose ranks start together and are measured one after another."""
    began = time.monotonic()
    runs: list[Run] = []
    try:
        for case in cases:
            runs.append(Run(torch, job, case))
        hear([run.start for run in runs], "ready", job.timeout)
        for run in runs:
            if not run.start.said("ready"):
                run.start.kill()
        for run in runs:
            run.seconds = (time.monotonic() - began) / len(runs)
        for run in runs:
            run.turn()
        for run in runs:
            run.start.go_on()
        for run in runs:
            run.start.reap()
        return [entry for run in runs for entry in run.entries(facts)]
    finally:
        for run in runs:
            shutil.rmtree(run.folder, ignore_errors=True)


def inspect(torch: Any, job: Job, facts: Json) -> tuple[Json, list[Json]]:
    """What the library says of itself, and what speaks against measuring."""
    with tempfile.TemporaryDirectory(prefix="nccl-probe-") as folder:
        log = Path(folder) / "log"
        asked = fork(lambda pipe: host.library(torch, pipe), case_environment(Case("library"), log.parent), log)
        start = Start([asked])
        hear([start], "facts", FACTS_TIMEOUT)
        late = asked.open and not start.said("facts")
        start.kill()  # it has told all it had to tell
        start.reap()
        words = host.content(log)[-TAIL:].strip()
    library: Json = asked.last("facts", {})
    if job.rehearsal:
        return library, []
    if late:
        return library, [diagnosis("driver-hang", words)]
    if not library.get("count"):
        return library, [diagnosis("cuda-missing", asked.last("error") or words)]
    if "nccl" not in library:
        return library, [diagnosis("nccl-missing")]
    if library.get("library"):
        library["sha256"] = host.digest(library["library"])
    found = []
    if library["count"] < job.ranks:
        found.append(diagnosis("too-few-gpus", f"{library['count']} visible, {job.ranks} ranks asked for"))
    models = sorted(set(library["visible"]))
    if len(models) > 1:
        found.append(diagnosis("mixed-gpus", ", ".join(models), stops=False))
    # An idle GPU of a datacenter driver holds well below this.
    busy = [f"GPU {index}: {used} MiB" for index, used in enumerate(facts["used_mib"]) if used and used > 2048]
    if busy:
        found.append(diagnosis("gpus-in-use", ", ".join(busy), stops=False))
    return library, found


class Session:
    """Torch imported and the library asked once, for any number of results."""

    def __init__(self, job: Job) -> None:
        self.job, self.facts = job, host.facts()
        self.library: Json = {}
        try:
            self.torch = importlib.import_module("torch")
            importlib.import_module("torch.distributed")
        except ImportError as error:
            self.diagnoses = [diagnosis("torch-missing", str(error))]
            return
        self.library, self.diagnoses = inspect(self.torch, job, self.facts)

    @property
    def usable(self) -> bool:
        return not any(found["stops"] for found in self.diagnoses)

    def measure(self, gangs: Iterable[Sequence[Case]], save: Callable[[Json], None]) -> Json:
        """One whole result, saved after every gang, so that a run cut short leaves what it measured.

        gangs: asked for the next when the one before was measured, so it may look at the clock.
        """
        job = self.job
        result: Json = {
            "schema": SCHEMA,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "complete": False,
            "rehearsal": job.rehearsal,
            "job": {name: getattr(job, name) for name in ("ranks", "backend", "dtype", "repeats", "timeout")},
            "host": self.facts,
            "configuration_files": host.configuration_files(),
            "library": self.library,
            "diagnoses": self.diagnoses,
            "cases": [],
        }
        if not self.usable:
            return result
        for gang in gangs:
            done = run_gang(self.torch, job, gang, self.facts)
            result["cases"] += done
            save(result)
            for entry in done:
                said = entry["diagnosis"]["name"] if entry["diagnosis"] else "ok"
                print(
                    f"[{len(result['cases'])}] {entry['name']} round {entry['round']}: {said}, {entry['seconds']} s",
                    file=sys.stderr,
                    flush=True,
                )
                if said == "unkillable":
                    return result  # the GPUs are lost to every further case
        result["complete"] = True
        return result


def write(path: Path, result: Json) -> None:
    """A reader sees the old or the new text, never half of one."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    part.replace(path)
