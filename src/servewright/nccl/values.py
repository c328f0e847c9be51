"""Judges one value by its variable's entry in the table: what NCCL makes of it, and what was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import reading, version
from .finding import Problem
from .registry import Variable
from .rules import Settings, Severity

_LL_BUFFER = 8 * 512 * 8 * 16
_LL128_BUFFER = 120 * 640 * 8 * 8
_SIMPLE_BUFFER = 4 * 2**20
"""Bytes per channel and peer. Source: NCCL 2.30.7 src/init.cc computeBuffSizes, src/include/device.h."""


def judge(variable: Variable, value: str, settings: Settings) -> Iterator[Problem]:
    """The problems of a value that is not empty. variable is as the NCCL version at hand has it."""
    if value != value.strip() or value[0] in "\"'" or (variable.type == "path" and value[0] == "~"):
        bare = value.strip().strip("\"'")
        yield Problem(
            "NCCL014",
            "error",
            "Quotes, spaces and ~ are part of the value for NCCL; only systemd and shells take them away.",
            "write the whole path" if bare[:1] == "~" else f"write {variable.name}={bare}",
            source="NCCL 2.30.7 src/misc/param.cc setEnvFile",
        )
    elif variable.type in _BY_TYPE:
        yield from _BY_TYPE[variable.type](variable, value, settings)


def _number(variable: Variable, value: str, settings: Settings) -> Iterator[Problem]:
    number, name, wanted = reading.integer(value), variable.name, reading.meant(value)
    if number is None or not reading.plain(value):
        taken = "nothing and keeps its default" if number is None else str(number)
        yield Problem(
            "NCCL004",
            "error",
            f"NCCL reads {value!r} as {taken}: {_why(value)}.",
            f"write {name}={wanted}" if wanted is not None else "write a plain decimal number",
        )
    elif variable.values and str(number) not in variable.values:
        effect = variable.unknown_effect or f"the values are {', '.join(variable.values)}"
        ignored = variable.unknown == "ignored"
        yield Problem(
            "NCCL005",
            "error" if ignored else "warning",
            f"NCCL does not know the value {number}: {effect}.",
            f"use one of {', '.join(variable.values)}",
            ignored,
        )
    else:
        yield from _range(variable, number)
        if name == "NCCL_BUFFSIZE":
            yield from _memory(number, settings)


def _range(variable: Variable, number: int) -> Iterator[Problem]:
    low, high, step, name = variable.minimum, variable.maximum, variable.multiple_of, variable.name
    unchecked = "NCCL does not check it"
    severity: Severity
    if step and number > 0 and number % step:
        used = high if variable.off_grid == "maximum" else number
        near = max(low or step, min(high or number, round(number / step) * step))
        yield Problem(
            "NCCL006",
            "warning",
            f"It must be a multiple of {step}; NCCL uses {used} instead and only its log says so.",
            f"write {name}={near}",
        )
    elif low is not None and number < low:
        outcome = {"minimum": f"NCCL uses {low}", "ignored": "NCCL ignores it"}.get(
            variable.below or "", unchecked
        )
        severity = "warning" if variable.below else "error"
        yield Problem(
            "NCCL005",
            severity,
            f"The smallest value is {low}; {outcome}.",
            f"write {name}={low} or more",
            variable.below == "ignored",
        )
    elif high is not None and number > high:
        outcome = f"NCCL uses {high}" if variable.above else unchecked
        severity = "warning" if variable.above else "error"
        yield Problem(
            "NCCL005", severity, f"The largest value is {high}; {outcome}.", f"write {name}={high} or less"
        )


def _why(value: str) -> str:
    if reading.integer(value) is None:
        return "it does not fit 64 bits"
    if value[:1] == "0" and value.isdigit():
        return "a leading zero means octal"
    if not value.lstrip("+-")[:1].isdigit():
        return "it does not start with a digit"
    return "it stops at the first character that is not a digit"


def _memory(size: int, settings: Settings) -> Iterator[Problem]:
    """What larger buffers take. Every protocol's buffer is there whatever NCCL_PROTO says."""
    ranks = settings.facts.tensor_parallel or settings.facts.gpu_count or 0
    caps = [settings.number(name) or 0 for name in ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS")]
    caps = [cap for cap in caps if cap > 0]
    if size <= _SIMPLE_BUFFER or ranks < 2 or not caps:
        return
    channels = min(*caps, 64 if settings.nccl >= (2, 25, 0) else 32)
    total = channels * (size + _LL_BUFFER + _LL128_BUFFER)
    where = "of memory on each GPU"
    if settings.p2p_off():
        total, where = total * ranks, f"of shared host memory for {ranks} GPUs"
        if settings.cumem_off():
            where += ", in /dev/shm because cuMem is off"
    yield Problem(
        "NCCL019",
        "info",
        f"With up to {channels} channels the rings alone take up to {total / 2**30:.1f} GiB {where}.",
        "make sure that much is free",
        source="NCCL 2.30.7 src/init.cc computeBuffSizes, src/transport/shm.cc shmRecvSetup",
    )


def _match(word: str, variable: Variable, words: tuple[str, ...]) -> str | None:
    """The accepted word that NCCL takes for a given one."""
    if variable.case_sensitive:
        return word if word in words else None
    return next((known for known in words if known.lower() == word.lower()), None)


def _unknown(variable: Variable, word: str, words: tuple[str, ...]) -> Problem:
    ignored = variable.unknown == "ignored"
    outcome = (
        "NCCL ignores it without a word"
        if ignored
        else f"NCCL falls back to its default ({variable.default})"
    )
    cased = next((known for known in words if known.lower() == word.lower()), None)
    if cased:
        return Problem(
            "NCCL008",
            "error",
            f"NCCL tells upper from lower case, so {word!r} is unknown; {outcome}.",
            f"write {variable.name}={cased}",
            ignored,
        )
    return Problem(
        "NCCL007",
        "error",
        f"NCCL does not know {word!r}; {outcome}.",
        f"use one of {', '.join(variable.values)}",
        ignored,
    )


def _word(variable: Variable, value: str, settings: Settings) -> Iterator[Problem]:
    words = variable.words(settings.nccl)
    if _match(value, variable, words) is None:
        yield _unknown(variable, value, words)


def _words(variable: Variable, value: str, settings: Settings) -> Iterator[Problem]:
    if value in variable.integers:
        return
    words = variable.words(settings.nccl)
    parts = [
        part for part in value.removeprefix("^" if variable.invert else "").split(variable.separator) if part
    ]
    bad = [part for part in parts if _match(part.strip(), variable, words) is None]
    for part in bad:
        problem = _unknown(variable, part, words)
        if variable.unknown == "default":
            yield problem._replace(
                message=f"NCCL does not know {part!r}, drops the whole list and uses its default "
                f"{variable.default}.",
                no_effect=True,
            )
        else:
            yield problem._replace(no_effect=len(bad) == len(parts))


def _level(variable: Variable, value: str, settings: Settings) -> Iterator[Problem]:
    words = variable.words(settings.nccl)
    if value in variable.values:
        return
    if value in words:
        yield Problem(
            "NCCL007",
            "warning",
            f"NCCL {version.render(settings.nccl)} takes {value}, but its guide does "
            "not name it, and its rank among the levels changed between versions.",
            f"use one of {', '.join(variable.values)}",
        )
    elif value[:1].isdigit():
        meant = variable.integers.get(str(reading.integer(value)), "SYS")
        yield Problem(
            "NCCL009",
            "warning",
            f"Numbers are an old numbering: NCCL takes {value} as {meant}.",
            f"write {variable.name}={meant}",
        )
    else:
        yield _unknown(variable, value, words)


_BY_TYPE: dict[str, Callable[[Variable, str, Settings], Iterator[Problem]]] = {
    "boolean": _number,
    "integer": _number,
    "size": _number,
    "word": _word,
    "words": _words,
    "level": _level,
}
