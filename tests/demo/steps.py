"""What the demo shows, in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.demo.inventory import Changes


@dataclass(frozen=True)
class Step:
    """A command line, why it is run, and the exit code it must end with."""

    title: str
    why: str
    line: str
    outcome: str
    """What that exit code means here."""
    code: int = 0
    changes: Changes = field(default_factory=dict)
    """What is declared differently from here on."""


STEPS = (
    Step(
        "The NCCL environment",
        "The inventory names a profile for GPUs that are linked by PCIe only; this is what it puts into the unit.",
        "servewright render | grep NCCL_",
        "rendered",
    ),
    Step(
        "Deploy",
        "Checks that the release can start, starts it, follows the model while it loads, and lets the gates prove "
        "that what runs is what was declared and answers right.",
        "servewright deploy --reason 'first release'",
        "committed",
    ),
    Step(
        "Verify",
        "The same gates, at any time, against what runs.",
        "servewright verify",
        "all gates passed",
    ),
    Step(
        "Deploy again",
        "Nothing differs from what runs, so nothing is restarted.",
        "servewright deploy",
        "unchanged",
    ),
    Step(
        "Deploy a broken release",
        "A new variable makes the engine take triton, not flashinfer as declared. It starts, is healthy and answers "
        "right, so only the gate that looks at the engine itself can tell.",
        "servewright deploy --reason 'new variable'",
        "rolled back",
        code=4,
        changes={"environment": {"SIM_ATTENTION_BACKEND": "triton"}},
    ),
    Step(
        "What serves now",
        "Release 1 is back, after the same gates.",
        "servewright status",
        "release 1 serves",
    ),
    Step(
        "How it came about",
        "The host remembers who changed what, when and why.",
        "servewright history",
        "both deploys listed",
    ),
    Step(
        "Deploy what cannot start",
        "The variable is gone again, but the new model is not on the host. That is found out before the running "
        "service is touched.",
        "servewright deploy --reason 'new model'",
        "refused",
        code=3,
        changes={"model": {"path": "/opt/simulator/model-v2"}},
    ),
)
