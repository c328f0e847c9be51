"""What a host is asked to measure, from the inventory and the options of the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from servewright.nccl import profiles
from servewright.nccl.measure.cases import HELD, NOTHING
from servewright.nccl.measure.forks import NEEDS_EXEC
from servewright.nccl.measure.sizes import DECODE_TOKENS, PREFILL_TOKENS
from servewright.spec import validate
from servewright.spec.positions import from_ansible

DECLARED = "as declared"
"""Name of the environment that the service has without being a profile."""


class Options(BaseModel):
    """What the user may say about a measurement."""

    model_config = ConfigDict(extra="forbid")

    profiles: list[str] = []
    seconds: float = Field(480.0, gt=0)
    timeout: float = Field(60.0, gt=0)
    decode: list[int] = list(DECODE_TOKENS)
    prefill: list[int] = list(PREFILL_TOKENS)
    weight_decode: float = Field(1.0, ge=0)
    weight_prefill: float = Field(1.0, ge=0)
    channels: list[int] = []
    ablate: str | None = None
    stop: bool = False
    rehearsal: bool = False


def request(what: str, release: Mapping[str, Any], options: Options, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The request for one release, less what only the host knows. Raises ValueError (an unknown profile)."""
    own = _own(variables)
    names = options.profiles or [*profiles.built_in(), *(profile.name for profile in own)]
    environments: dict[str, dict[str, str]] = {NOTHING: {}}
    for name in names:
        environments[name] = environment(profiles.get(name, own))
    if not options.profiles:
        # Those that set nothing are `nothing set` under another name.
        environments = {name: found for name, found in environments.items() if found or name == NOTHING}
    declared = {name: release["environment"][name] for name in release["nccl"]}
    if declared not in environments.values():
        environments[DECLARED] = declared
    ablate = options.ablate
    if ablate is not None:
        environments.setdefault(ablate, environment(profiles.get(ablate, own)))
    for name, found in environments.items():
        if late := sorted(found.keys() & set(NEEDS_EXEC)):
            raise ValueError(f"{name}: {late[0]} acts on programs that start, and what is measured has started")
    if not options.weight_decode + options.weight_prefill:
        raise ValueError("the weights of decode and prefill must not both be 0")
    flags = release["argv"]
    return {
        "what": what,
        "profiles": environments,
        "weights": {"decode": options.weight_decode, "prefill": options.weight_prefill},
        "seconds": options.seconds,
        "timeout": options.timeout,
        "decode": options.decode,
        "prefill": options.prefill,
        "channels": options.channels,
        "ablate": ablate,
        "rehearsal": options.rehearsal,
        "held": {name: release["environment"][name] for name in HELD if name in release["environment"]},
        "dtype": flags[flags.index("--dtype") + 1] if "--dtype" in flags[:-1] else None,
    }


def environment(profile: profiles.Profile) -> dict[str, str]:
    return {variable: setting.value for variable, setting in profile.settings.items()}


def _own(variables: Mapping[str, Any]) -> Sequence[profiles.Profile]:
    """The profiles of the inventory."""
    data, positions = from_ansible(variables.get(validate.PROFILES_VARIABLE), (validate.PROFILES_VARIABLE,))
    return validate.profiles(data, positions)
