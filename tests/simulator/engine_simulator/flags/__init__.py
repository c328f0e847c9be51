"""Argument parsers built from the recorded flag tables of the real engines (see record_flags.py)."""

from __future__ import annotations

import argparse
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple


class Flag(NamedTuple):
    """One row of a table, as one version of the engine defines it."""

    names: list[str]
    dest: str
    kind: str
    type: str
    choices: list[str]
    default: Any


def version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def human_integer(text: str) -> int:
    """vLLM's integer: 32k is 32000, 32K is 32768 (vllm/utils/argparse_utils.py)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text.strip())
    if not match:
        return int(text)
    number, suffix = match.groups()
    power = "kmgt".index(suffix.lower()) + 1
    if suffix.islower():
        return int(float(number) * 1000**power)
    if "." in number:
        raise argparse.ArgumentTypeError(f"Decimals are not allowed with binary suffixes like {suffix}.")
    return int(number) * int(1024**power)


def human_integer_sglang(text: str) -> int:
    """SGLang's integer: 32k is 32000, 32Ki is 32768, anything else is refused (srt/utils/common.py)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)", text.strip())
    if match:
        number, suffix = match.groups()
        power = "kMGT".lower().index(suffix[0].lower()) + 1
        return int(float(number) * (1024 if suffix.endswith("i") else 1000) ** power)
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"Invalid integer value: '{text}'. Use a plain integer, SI suffixes (1k, 1M), or IEC suffixes "
            "(1Ki, 1Mi). Suffixes are case-sensitive."
        ) from None


def json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to {json.loads}.") from None


def human_or_auto(text: str) -> int:
    return -1 if text.strip().lower() in ("-1", "auto") else human_integer(text)


def converter(engine: str, kind: str) -> Callable[[str], Any]:
    human = human_integer_sglang if engine == "sglang" else human_integer
    table: dict[str, Callable[[str], Any]] = {
        "int": int,
        "float": float,
        "json": json_value,
        "human": human,
        "human_auto": human_or_auto,
    }
    return table.get(kind, str)


def _default(engine: str, kind: str, type_name: str, text: str) -> Any:
    if kind in ("flag", "switch"):
        return {"True": True, "False": False}.get(text)
    if not text:
        return [] if kind == "append" else None
    if kind in ("list", "append") or text[0] in "[{(":
        return json.loads(text) if text in ("[]", "{}") else None
    try:
        return converter(engine, type_name)(text)
    except (ValueError, argparse.ArgumentTypeError):
        return None  # a repr of an object: the simulator has no use for it


def table(engine: str, version: str) -> list[Flag]:
    """The flags of the newest recorded version that is not newer than `version` (else the oldest)."""
    lines = (pathlib.Path(__file__).parent / f"{engine}.tsv").read_text().splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    recorded = sorted({v for row in rows for v in row[0].split()}, key=version_key)
    older = [v for v in recorded if version_key(v) <= version_key(version)]
    chosen = older[-1] if older else recorded[0]
    return [
        Flag(
            names.split(","),
            dest,
            kind,
            type_name,
            [choice for choice in choices.split(",") if choice],
            _default(engine, kind, type_name, default),
        )
        for versions, names, dest, kind, type_name, choices, default in rows
        if chosen in versions.split()
    ]


def add_flags(parser: argparse.ArgumentParser, engine: str, version: str) -> None:
    """Register every recorded flag of this engine and version."""
    for flag in table(engine, version):
        if flag.kind == "flag":
            parser.add_argument(*flag.names, dest=flag.dest, action="store_true", default=flag.default)
            continue
        if flag.kind == "switch":
            positive = [name for name in flag.names if not name.startswith("--no-")]
            parser.add_argument(*positive, dest=flag.dest, action=argparse.BooleanOptionalAction, default=flag.default)
            continue
        options: dict[str, Any] = {"dest": flag.dest, "default": flag.default}
        options["type"] = converter(engine, flag.type)
        if flag.choices:
            options["choices"] = [options["type"](c) for c in flag.choices] if flag.type == "int" else flag.choices
        if flag.kind == "append":
            options["action"] = "append"
        elif flag.kind in ("list", "maybe"):
            options["nargs"] = "+" if flag.kind == "list" else "?"
        if flag.dest == "model_path":
            options["required"] = True
        parser.add_argument(*flag.names, **options)
