"""What runs on the host to bench or tune, with the Python of the engine's virtual environment:

    python measure.pyz REQUEST.json FOLDER
    python measure.pyz --check REQUEST.json     prints a diagnosis, or null, and touches no GPU

Results go into the folder: a record for each phase, kept up to date while it is measured, and at the end
outcome.json. Progress is on standard error. The exit status is 0 when outcome.json holds a result, 1 when it holds a
diagnosis, 2 when the request cannot be used.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import cases, choose, compare, probe, record, tune
from .cases import Case
from .diagnosis import diagnosis
from .record import Record
from .request import Request, RequestError

OUTCOME = "outcome.json"


class Bench:
    """One session of the probe, whose records go into a folder."""

    def __init__(self, request: Request, folder: Path) -> None:
        self.folder, self.session = folder, probe.Session(request.job())

    def measure(self, phase: str, gangs: Iterator[list[Case]]) -> Record:
        path = self.folder / f"{phase}.json"
        print(f"phase {phase}", file=sys.stderr, flush=True)
        result = self.session.measure(gangs, lambda partial: probe.write(path, partial))
        probe.write(path, result)
        return record.typed(result)


def measured(request: Request, bench: Bench) -> dict[str, Any]:
    """The outcome as JSON, with what was held in every case. Raises what `tune.run` raises."""
    held = probe.held()
    if request.what == "bench":
        return side_by_side(request, bench) | {"held": held}
    if request.ablate:
        found = cases.ablation(request.ablate, request.plan.profiles[request.ablate])
        share = request.plan.seconds * tune.ABLATION_SHARE
        bench.measure("ablation", tune.paced(tune.in_gangs(cases.rounds(found, 4), tune.GANG), share))
    outcome = tune.run(request.plan, bench.measure).as_json()
    return outcome | {"held": held, "environment": held | outcome["environment"]}


def side_by_side(request: Request, bench: Bench) -> dict[str, Any]:
    plan = request.plan
    listed = cases.bench(plan.profiles)
    gangs = tune.in_gangs(cases.rounds(listed, tune.VERIFY_ROUNDS), min(len(listed), tune.GANG))
    found = bench.measure("bench", tune.paced(gangs, plan.seconds))
    if not found.timings:
        raise tune.NothingMeasuredError("bench", found)
    scores = choose.single(compare.summarise(found.timings), plan.messages, plan.weights)
    return tune.Outcome("bench", None, {}, [], scores).as_json()


def check(path: Path) -> dict[str, Any] | None:
    """What the environment or the model lacks, found without a GPU."""
    try:
        request = Request.read(path.read_text(encoding="utf-8"))
    except RequestError as error:
        return diagnosis("model-config", str(error))
    try:
        importlib.import_module("torch")
        distributed = importlib.import_module("torch.distributed")
    except (ImportError, OSError) as error:
        return diagnosis("nccl-missing" if "nccl" in str(error) else "torch-missing", str(error))
    if not request.rehearsal and not (distributed.is_available() and distributed.is_nccl_available()):
        return diagnosis("nccl-missing")
    return None


def main(arguments: list[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "--check":
        print(json.dumps(check(Path(arguments[1]))))
        return 0
    if len(arguments) != 2:
        print("usage: measure REQUEST.json FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[1])
    outcome: dict[str, Any]
    status = 0
    try:
        request = Request.read(Path(arguments[0]).read_text(encoding="utf-8"))
        bench = Bench(request, folder)
        if bench.session.usable:
            outcome = measured(request, bench)
        else:
            outcome, status = {"diagnosis": next(d for d in bench.session.diagnoses if d["stops"])}, 1
        outcome["warnings"] = [found for found in bench.session.diagnoses if not found["stops"]]
    except (RequestError, OSError) as error:
        outcome, status = {"diagnosis": diagnosis("bad-job", str(error))}, 2
    except tune.NothingMeasuredError as error:
        outcome, status = {"diagnosis": of_record(error.record), "phase": str(error)}, 1
    except (choose.NothingToChooseError, compare.MethodError) as error:
        outcome, status = {"diagnosis": diagnosis("rank-failed", str(error))}, 1
    probe.write(folder / OUTCOME, outcome)
    return status


def of_record(found: Record) -> Mapping[str, Any]:
    first = next((said for said in found.diagnoses if said.stops), None)
    if first is None:
        return diagnosis("hang", "no case was measured in the time given")
    return {"name": first.name, "detail": first.detail, "to_do": first.to_do, "stops": True}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
