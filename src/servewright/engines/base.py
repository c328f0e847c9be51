"""The shape of an engine adapter, and how options become flags."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from servewright.spec.service import Service

Words = list[str]


@dataclass(frozen=True)
class Engine:
    """One engine: how it is started and what it tells about itself.

    `command` and `flags` give the argument list: the words that start the engine, then one list per flag.
    `owned` maps a flag that servewright sets to the field that declares it, `secret_flags` and `unseen_flags` those
    that are refused to what helps instead; `endpoints` names HTTP paths
    (several: tried in turn). `truth` says where the engine shows what is in force, by setting: rows tried in turn, each
    a place and a path or pattern. `info` is a path in the server info (`*`: every data-parallel rank), `log` and
    `metrics` are patterns with one group. `observed` gives what no version reports and can only be seen under load.
    `metrics` are the counters of load (the host library's load.Load), `acceptance` those of speculation.
    `permanent_exit_codes` mean that every retry fails, too.
    """

    name: str
    command: Callable[[Service, str], Words]
    flags: Callable[[Service], list[Words]]
    expected: Callable[[Service], dict[str, Any]]
    owned: Mapping[str, str]
    secret_flags: Mapping[str, str]
    unseen_flags: Mapping[str, str]
    endpoints: Mapping[str, list[str]]
    log_lines: Mapping[str, str]
    truth: Mapping[str, list[tuple[str, str]]]
    metrics: Mapping[str, list[str]]
    acceptance: Mapping[str, Any]
    observed: Callable[[Service], dict[str, int]] = lambda service: {}
    permanent_exit_codes: tuple[int, ...] = (2,)  # argparse, in both engines
    environment: Mapping[str, str] = field(default_factory=dict)
    reserved_environment: Mapping[str, str] = field(default_factory=dict)


UNSEEN_FLAGS: Mapping[str, str] = {
    "--config": "declare under 'options' and 'extra_args' what that file holds",
    "--ssl-keyfile": "put a proxy that speaks TLS before it",
    "--ssl-certfile": "put a proxy that speaks TLS before it",
}
"""What either engine takes, and what would hide from the gates: they compare flags, and ask over HTTP."""


def flag_words(name: str, value: Any) -> list[Words]:
    """Words of one flag: none, `--name`, or `--name value...`.

    `value` is a JSON value: true is the flag alone, false and null leave it out, a list is several words, a mapping
    is one word of JSON with sorted keys (the same input must give the same bytes).
    """
    flag = name if name.startswith("-") else "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [[flag]]
    if isinstance(value, Mapping):
        return [[flag, json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)]]
    if isinstance(value, (list, tuple)):
        return [[flag, *(_word(item) for item in value)]]
    return [[flag, _word(value)]]


def _word(value: Any) -> str:
    if isinstance(value, (Mapping, list, tuple)) or value is None or isinstance(value, bool):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return str(value)


def extra(service: Service, flag: str) -> Any:
    """Value of a flag in `extra_args`, however its name is written there; None when it is not."""
    for name, value in service.extra_args.items():
        if name.lstrip("-").replace("_", "-") == flag:
            return value
    return None


def option_flags(service: Service) -> list[Words]:
    """Flags of the typed options in the order of their declaration, then of `extra_args` in order of name."""
    words: list[Words] = []
    for name in type(service.options).model_fields:
        words += flag_words(name, getattr(service.options, name))
    for name in sorted(service.extra_args):
        words += flag_words(name, service.extra_args[name])
    return words
