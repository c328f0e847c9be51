"""Named NCCL environments: what they set, why, and which one suits a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from pydantic import Field

from . import data
from .facts import Facts

AUTO = "auto"
NAME = r"^[a-z0-9][a-z0-9-]*$"


class Setting(data.Row):
    """A variable of a profile."""

    value: str = Field(description="Value of the variable, as text.")
    reason: str = Field(min_length=1, description="Why it is set.")


class Measured(data.Row):
    """Whether the profile was measured on the topology it is for, and what is known."""

    status: Literal["yes", "no"] = Field("no", description="Whether it was measured.")
    note: str = Field("", description="What is known.")


class Profile(data.Row):
    """A named, versioned environment. Users declare their own with the same fields."""

    name: str = Field(pattern=NAME, description="Name that a service asks for.")
    version: int = Field(default=1, ge=1, description="Version; raise it with every change.")
    title: str = Field("", description="What it is for, in a few words.")
    topology: Literal["pcie", "nvlink", "any"] = Field("any", description="How the GPUs it is for are linked.")
    settings: dict[str, Setting] = Field(description="The variables, by name.")
    measured: Measured = Field(Measured(), description="Whether it was measured on that topology.")
    sources: tuple[str, ...] = Field((), description="Where the values come from.")


class Condition(data.Row):
    """What a rule of `auto` asks of the facts; unset fields ask nothing."""

    interconnect: Literal["pcie", "nvlink"] | None = None
    p2p: bool | None = None
    capability_major: int | None = None
    gpu_count_below: int | None = None
    tensor_parallel_below: int | None = None

    def met(self, facts: Facts) -> bool:
        """True when every field set here is known and fits."""
        major = facts.compute_capability[0] if facts.compute_capability else None
        equal = (
            (self.interconnect, facts.interconnect),
            (self.p2p, facts.p2p),
            (self.capability_major, major),
        )
        below = (
            (self.gpu_count_below, facts.gpu_count),
            (self.tensor_parallel_below, facts.tensor_parallel),
        )
        return all(want is None or want == have for want, have in equal) and all(
            bound is None or (have is not None and have < bound) for bound, have in below
        )


class Choice(data.Row):
    """One rule of `auto`, and its outcome. `profile` None means: set nothing."""

    when: Condition = Condition()
    profile: str | None
    reason: str


class _Book(data.Row):
    profiles: tuple[Profile, ...]
    auto: tuple[Choice, ...]


class Resolved(NamedTuple):
    variable: str
    value: str
    origin: str
    reason: str


class UnknownProfileError(ValueError):
    """No profile of that name is built in or declared."""


@lru_cache(maxsize=1)
def _book() -> _Book:
    return _Book.model_validate(data.load("profiles.yml"))


def built_in() -> dict[str, Profile]:
    return {profile.name: profile for profile in _book().profiles}


def choose(facts: Facts) -> Choice:
    """The rule of `auto` that applies: first match in the order of the data file."""
    return next(choice for choice in _book().auto if choice.when.met(facts))


def get(name: str, user_profiles: Sequence[Profile] = ()) -> Profile:
    """A profile by name; a user's profile may not take the name of a built-in one.

    Raises UnknownProfileError, naming the ones there are.
    """
    known = {profile.name: profile for profile in user_profiles}
    taken = sorted(known.keys() & {AUTO, *built_in()})
    if taken:
        raise ValueError(f"profile name {taken[0]!r} is built in; give your own profile another name")
    known.update(built_in())
    if name not in known:
        raise UnknownProfileError(f"no NCCL profile {name!r}; there are: {', '.join(sorted([AUTO, *known]))}")
    return known[name]


def resolve(
    profile_name: str | None,
    user_profiles: Sequence[Profile] = (),
    overrides: Mapping[str, str | None] | None = None,
    facts: Facts | None = None,
) -> list[Resolved]:
    """The environment a service gets, by variable name, each with its origin and reason.

    overrides come from the inventory and win over the profile; None removes a variable of the profile.
    Raises UnknownProfileError, or ValueError when a user profile takes a built-in name.
    """
    facts = facts or Facts()
    note = ""
    if profile_name == AUTO:
        choice = choose(facts)
        profile_name, note = choice.profile, f" (auto: {choice.reason})"
    rows: dict[str, Resolved] = {}
    if profile_name is not None:
        profile = get(profile_name, user_profiles)
        origin = f"profile {profile.name} v{profile.version}{note}"
        for variable, setting in profile.settings.items():
            rows[variable] = Resolved(variable, setting.value, origin, setting.reason)
    for variable, value in (overrides or {}).items():
        rows.pop(variable, None)
        if value is not None:
            rows[variable] = Resolved(variable, value, "inventory", "set in the inventory")
    return sorted(rows.values())
