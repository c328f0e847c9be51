"""What the host is asked to measure, as it travels from the controller."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import cases, sizes
from .tune import Plan


class RequestError(ValueError):
    """The request cannot be used; the text says why."""


@dataclass(frozen=True)
class Request:
    """ablate: the profile whose variables are measured one by one before the tuning."""

    what: Literal["bench", "tune"]
    plan: Plan
    dtype: str
    timeout: float
    rehearsal: bool = False
    ablate: str | None = None

    @classmethod
    def read(cls, text: str) -> Request:
        """One JSON object:

        what, ranks, topology ("pcie" or "nvlink"), profiles {name: environment}, weights {decode, prefill}, seconds
        for all, timeout of a case, plugin (path of the library or null), rehearsal, ablate, and the model: config
        (path of its config.json on this host), dtype (the engine's, or null).
        Raises RequestError.
        """
        try:
            given = json.loads(text)
            config = json.loads(Path(given["config"]).read_text(encoding="utf-8"))
            shape = sizes.shape(config, given.get("dtype"))
            messages = sizes.messages(
                shape,
                given.get("decode") or sizes.DECODE_TOKENS,
                given.get("prefill") or sizes.PREFILL_TOKENS,
            )
            profiles: Mapping[str, Mapping[str, str]] = given["profiles"]
            ablate = given.get("ablate")
            if ablate and ablate not in profiles:
                raise RequestError(f"ablate: {ablate!r} is not one of the profiles {', '.join(profiles)}")
            rehearsal = bool(given.get("rehearsal"))
            return cls(
                what=given["what"],
                plan=Plan(
                    topology=given["topology"],
                    ranks=given["ranks"],
                    messages=messages,
                    profiles=profiles,
                    weights=given["weights"],
                    seconds=float(given["seconds"]),
                    plugin=given.get("plugin"),
                    channels=tuple(given.get("channels") or cases.CHANNELS),
                ),
                dtype=shape.dtype,
                timeout=float(given["timeout"]),
                rehearsal=rehearsal,
                ablate=ablate,
            )
        except KeyError as error:
            raise RequestError(f"the request lacks {error}") from None
        except (OSError, TypeError, ValueError) as error:
            raise RequestError(str(error)) from None

    def job(self) -> cases.Job:
        """What all phases have in common, for the probe."""
        return cases.Job(
            ranks=self.plan.ranks,
            dtype=self.dtype,
            sizes=self.plan.sizes,
            timeout=self.timeout,
            # A comparison is of all that engines call.
            collectives=cases.COLLECTIVES if self.what == "bench" else (cases.COLLECTIVE,),
            calls=3 if self.rehearsal else 50,
            rehearsal=self.rehearsal,
        )
