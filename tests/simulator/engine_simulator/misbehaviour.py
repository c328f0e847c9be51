"""What the simulated engine does wrong, read from the SIM_* variables of the service's environment."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

EX_USAGE = 64  # sysexits.h; no real engine exits with it, so a broken test is told from a broken engine


@dataclasses.dataclass(frozen=True)
class Misbehaviour:
    """One field per SIM_<NAME> variable; the README's table says what each does. Times are seconds."""

    load_seconds: float = 1.0
    silent_load: bool = False
    stall_at: float | None = None
    exit_after: float | None = None
    exit_code: int = 1
    exit_when_ready_after: float | None = None
    never_ready: bool = False
    post_hangs: bool = False
    garbage: bool = False
    repeat_word: bool = False
    gibberish: bool = False
    gibberish_batch: bool = False
    any_model: bool = False
    any_length: bool = False
    die_after: float | None = None
    die_saying: str = ""
    hang_after_requests: int | None = None
    busy_503: float | None = None
    busy_after: float = 0.0
    info_endpoint: str = ""
    guard: str = ""
    speed: float = 1.0
    noise: float = 0.0
    first_token_seconds: float | None = None
    cold_seconds: float = 0.0
    attention_backend: str = ""
    max_running: int | None = None
    accept_length: float = 2.8
    accept_others: float = 1.4
    internal_states: str = ""
    health_generate: str = ""
    truncate_stream: bool = False
    short_stream: bool = False
    ignore_sigterm: bool = False
    orphan: str = ""
    child_env_drop: str = ""
    gpu_linger: float = 0.0
    empty_answer: bool = False
    wrong_name: bool = False
    life_scale: float = 1.0
    nccl_log: str = ""
    nccl_cut: str = ""
    nccl_hang: bool = False
    nccl_library: str = ""
    shm_folder: str = "/dev/shm"

    def busy(self, seconds: float) -> bool:
        """True when every request is answered with 503, so many seconds after readiness."""
        return self.busy_503 is not None and self.busy_after <= seconds < self.busy_after + self.busy_503


CHOICES = {
    "info_endpoint": ("old", "new", "none"),
    "internal_states": ("empty", "null", "missing"),
    "health_generate": ("missing", "always"),
    "orphan": ("port", "shm", "both"),
}


def _convert(field: dataclasses.Field[Any], text: str) -> object:
    if "bool" in str(field.type):
        if text not in ("0", "1", ""):
            raise ValueError("must be 0 or 1")
        return text == "1"
    if "int" in str(field.type):
        return int(text)
    if "float" in str(field.type):
        value = float(text)
        if value < 0:
            raise ValueError("must not be negative")
        return value
    if field.name in CHOICES and text not in CHOICES[field.name]:
        raise ValueError("must be one of " + ", ".join(CHOICES[field.name]))
    return text


def read(environment: Mapping[str, str]) -> Misbehaviour:
    """Parse the SIM_* variables; an unknown name or a bad value ends the process with EX_USAGE."""
    fields = {"SIM_" + field.name.upper(): field for field in dataclasses.fields(Misbehaviour)}
    values: dict[str, object] = {}
    for name, text in environment.items():
        if not name.startswith("SIM_"):
            continue
        try:
            if name not in fields:
                raise ValueError("no such misbehaviour; known: " + " ".join(fields))
            values[fields[name].name] = _convert(fields[name], text)
        except ValueError as error:
            print(f"engine simulator: {name}={text}: {error}", file=sys.stderr)
            sys.exit(EX_USAGE)
    return Misbehaviour(**values)  # type: ignore[arg-type]
