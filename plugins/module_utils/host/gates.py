"""Gates: each checks one thing of a running release, with evidence. Together they decide keep or roll back."""

from __future__ import annotations

import re
import time

from . import proc, ready, systemd, truth
from .errors import HostError
from .http import HttpError
from .paths import unit_name

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Run:
    """What the gates of one release share: the release, its number, its unit's state when it became ready."""

    def __init__(self, release, number):
        self.release = release
        self.number = number
        self.unit = unit_name(release["service"])
        self.state = systemd.show(self.unit)
        self.since = time.monotonic()
        self.http = ready.client(release, number)


def all_gates(release, number, note=lambda gate: None):
    """Run the gates in order and give their results; after a failure the ones that would only repeat it are skipped.

    A result is {"id", "verdict", "message", "evidence", "seconds"}.
    """
    run = Run(release, number)
    results, failed = [], False
    for name, gate in GATES:
        begin = time.monotonic()
        if failed:
            verdict, message, evidence = SKIPPED, "an earlier gate failed", {}
        else:
            try:
                verdict, message, evidence = gate(run)
            except (HttpError, HostError) as error:
                verdict, message, evidence = FAILED, str(error), {}
        failed = failed or verdict == FAILED
        result = {
            "id": name,
            "verdict": verdict,
            "message": message,
            "evidence": evidence,
            "seconds": round(time.monotonic() - begin, 3),
        }
        note(result)
        results.append(result)
    return results


def first_failed(results):
    """What failed first, as text, or None when everything passed."""
    for result in results:
        if result["verdict"] == FAILED:
            return "gate {} failed: {}".format(result["id"], result["message"])
    return None


def identity(run):
    """The server serves the declared model: name, folder and, where the engine tells it, context length."""
    models = run.http.json("GET", run.release["endpoints"]["models"][0])
    entries = models.get("data") or []
    names = [entry.get("id") for entry in entries]
    declared = run.release["model"]["served_name"]
    if declared not in names:
        return (
            FAILED,
            "serves {}, not {!r}".format(", ".join(map(repr, names)) or "no model", declared),
            {"models": names},
        )
    entry = entries[names.index(declared)]
    length, wanted = entry.get("max_model_len"), run.release["model"]["context_length"]
    if wanted is not None and length is not None and length != wanted:
        return FAILED, f"context length is {length}, declared is {wanted}", {"max_model_len": length}
    path = entry.get("root")  # vLLM's; SGLang repeats the name there and has an endpoint of its own
    if run.release["endpoints"]["model"]:
        path = run.http.first(run.release["endpoints"]["model"]).get("model_path")
    if path != run.release["model"]["path"]:
        return FAILED, "model folder is {}, declared is {}".format(path, run.release["model"]["path"]), {"path": path}
    return PASSED, f"serves {declared!r}", {"models": names, "path": path, "max_model_len": length}


def engine(run):
    """What the engine resolved is what was declared, from its own report or log."""
    expected = run.release["expected"]
    if not expected:
        return PASSED, "nothing declared that the engine reports", {}
    if run.release["endpoints"]["info"]:
        info = run.http.first(run.release["endpoints"]["info"])
        found = {name: info.get(name) for name in expected}
        wrong = {name: value for name, value in found.items() if value != expected[name]}
    else:
        found, wrong = _from_log(run, expected)
    if wrong:
        text = ", ".join(
            "{} is {}, declared is {}".format(name, value if value is not None else "not reported", expected[name])
            for name, value in sorted(wrong.items())
        )
        return FAILED, text, found
    return PASSED, ", ".join("{} {}".format(*item) for item in sorted(found.items())), found


def _from_log(run, expected):
    found, wrong = {}, {}
    for name, value in expected.items():
        pattern = run.release["log_lines"][name]
        lines = systemd.log_text(run.state["InvocationID"], pattern)
        hits = [match.group(1).upper() for match in (re.search(pattern, line) for line in lines) if match]
        found[name] = hits[-1] if hits else None
        if value.upper() not in hits:
            wrong[name] = found[name]
    return found, wrong


def process(run):
    """Arguments, environment, user and limits of the running processes are the release's."""
    found = truth.differences(run.release, run.state)
    workers = truth.tree(run.release, run.state)
    pids = systemd.pids(run.state["ControlGroup"])
    evidence = {
        "main": run.state["MainPID"],
        "processes": [proc.describe(pid) for pid in pids],
        "differences": found + workers,
    }
    if found:
        first = found[0]
        return (
            FAILED,
            "{} of the running process is {}, declared is {}".format(
                first["field"], first["running"], first["declared"]
            ),
            evidence,
        )
    if workers:
        first = workers[0]
        return (
            FAILED,
            "process %d (%s) has %s=%s, declared is %s"
            % (
                first["pid"],
                first["process"],
                first["field"].split(".", 1)[1],
                first["running"],
                first["declared"],
            ),
            evidence,
        )
    return PASSED, "arguments and environment of %d processes as declared" % len(pids), evidence


def answers(run):
    """Prompts with known answers are answered right."""
    verify = run.release["verify"]
    asked = []
    for prompt in verify["prompts"]:
        text = ready.completion(
            run.release, run.http, prompt["prompt"], prompt["max_tokens"], verify["request_timeout"]
        )
        asked.append({"prompt": prompt["prompt"], "answer": text[:200]})
        if not re.search(prompt["expect"], text):
            return (
                FAILED,
                "{!r} was answered with {!r}, which does not match {!r}".format(
                    prompt["prompt"], text[:80], prompt["expect"]
                ),
                {"asked": asked},
            )
    return PASSED, f"{len(asked)} prompt{'s' if len(asked) != 1 else ''} answered as expected", {"asked": asked}


def stable(run):
    """The unit has run without a restart since it was ready."""
    left = run.release["verify"]["stable"] - (time.monotonic() - run.since)
    while True:
        state = systemd.show(run.unit)
        if state["InvocationID"] != run.state["InvocationID"] or state["NRestarts"] != run.state["NRestarts"]:
            return FAILED, f"the unit restarted: {ready.ending(state)}", {"restarts": state["NRestarts"]}
        if not systemd.active(state):
            return FAILED, "the unit is {}: {}".format(state["ActiveState"], ready.ending(state)), {}
        if left <= 0:
            return (
                PASSED,
                "no restart for {:g} s".format(run.release["verify"]["stable"]),
                {"invocation": state["InvocationID"]},
            )
        time.sleep(min(left, 0.5))
        left -= 0.5


GATES = (
    ("identity", identity),
    ("process", process),
    ("engine", engine),
    ("answers", answers),
    ("stable", stable),
)
