"""Is the release as fast as declared, or as the one before it was on this host?"""

from __future__ import annotations

from ..performance import baselines, judge, measure
from ..performance.figures import KINDS, summary, text
from .run import FAILED, PASSED, SKIPPED

UNTOLD = "the server counts no tokens, so work for others would go unnoticed: only declared floors are held against it"


def gate(run):
    """The figures keep the declared floors and, where none is declared, lie within the noise of earlier starts.

    Where the release is one that was committed before and is gone back to, it is measured and nothing more: being slow
    is no reason to have nothing. A floor is held even against a server that does not tell whether others use it: who
    declares one says what it has to do.
    """
    settings = run.release["verify"].get("performance")  # releases of earlier versions have none
    if not settings or not settings["enabled"]:
        return PASSED, "not measured (verify.performance.enabled)", {}
    baseline, notes = baselines.comparable(run.release, run.number)
    bounds = judge.bounds(settings, baseline)
    meter = measure.Meter(run.release, run.http, settings["seconds"], check=run.same_process)
    try:
        cold = meter.warm_up()
        values = meter.single_stream(settings["repeats"], settings["most_repeats"], bounds)
        if settings["concurrency"]:
            values["throughput"] = meter.throughput(max(settings["concurrency"]), measure.LEAST)
    except measure.Busy as error:
        return SKIPPED, str(error), {}
    if not meter.told:
        bounds, notes = {name: bound for name, bound in bounds.items() if bound.against == "floor"}, [*notes, UNTOLD]
    figures = {name: summary(name, found) for name, found in values.items()}
    judged = {name: judge.judged(name, figures[name]["median"], bound) for name, bound in bounds.items()}
    evidence = {
        "invocation": run.state["InvocationID"],
        "figures": figures,
        "judged": judged,
        "first_requests": cold,
        "workload": meter.workload(),
        "undisturbed": meter.told,
        "notes": notes,
    }
    slow = [judge.sentence(name, found) for name, found in judged.items() if not found["passed"]]
    told = slow or [judge.sentence(name, found) for name, found in judged.items()] or _told(figures)
    message = "; ".join([*told, *notes])
    if slow and run.returning:
        return PASSED, f"{message}; going back is not stopped by this", evidence
    return (FAILED if slow else PASSED), message, evidence


def _told(figures):
    """Figures that there is nothing to compare with."""
    return [f"{KINDS[name].words} {text(name, figures[name]['median'])}" for name in ("decode", "ttft_long")]
