"""Record the command-line flags of a real engine for the simulator.

Run inside the environment of the real engine; it reads the engine's own argparse parser and writes
only what a caller of the command line can see: names, kind, value type, choices and default.

    V/bin/python record_flags.py vllm 0.32.0 engine_simulator/flags/vllm.tsv

The table holds one row per distinct flag definition and, in its first column, the versions that
have exactly this definition, so a flag that changed between versions has several rows.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

COLUMNS = ("versions", "names", "dest", "kind", "type", "choices", "default")


def engine_parser(engine: str) -> argparse.ArgumentParser:
    """The real engine's serve parser."""
    if engine == "vllm":
        try:
            from vllm.entrypoints.launchers.cli_args import make_arg_parser
        except ImportError:  # older layout
            from vllm.entrypoints.openai.cli_args import make_arg_parser
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        return make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return parser


def kind_of(action: argparse.Action) -> str:
    """How many values the flag takes: flag, switch (--x/--no-x), value, maybe, list or append."""
    name = type(action).__name__
    if name == "BooleanOptionalAction":
        return "switch"
    if name == "_AppendAction":
        return "append"
    if action.nargs == 0:
        return "flag"
    return {"+": "list", "*": "list", "?": "maybe"}.get(str(action.nargs), "value")


def type_of(action: argparse.Action) -> str:
    """str, int, float, json or human (an integer with a suffix); the engines wrap these in closures."""
    names = [getattr(action.type, "__name__", "")]
    names += [getattr(cell.cell_contents, "__name__", "") for cell in getattr(action.type, "__closure__", None) or ()]
    for name in names:
        if name in ("int", "float"):
            return name
        if name in ("human_readable_int", "human_readable_int_or_auto"):
            return "human_auto" if name.endswith("auto") else "human"
        if name in ("loads", "parse_dataclass", "_parse_type", "union_dict_and_str"):
            return "json"
    return "str"


def rows_of(parser: argparse.ArgumentParser) -> list[tuple[str, ...]]:
    rows = []
    for action in parser._actions:
        if not action.option_strings or "--help" in action.option_strings:
            continue
        choices = action.choices or ()
        choices = sorted(choices) if isinstance(choices, set) else choices  # a set has no order to keep
        choices = ",".join(str(choice) for choice in choices if choice is not None)
        default = "" if action.default in (None, argparse.SUPPRESS) else str(action.default)
        if len(default) > 60:
            default = ""
        rows.append((",".join(action.option_strings), action.dest, kind_of(action), type_of(action), choices, default))
    return rows


def version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def main() -> None:
    engine, version, target = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    table: dict[tuple[str, ...], set[str]] = {}
    if target.exists():
        for line in target.read_text().splitlines()[1:]:
            versions, *row = line.split("\t")
            table[tuple(row)] = set(versions.split()) - {version}
    for row in rows_of(engine_parser(engine)):
        table.setdefault(row, set()).add(version)
    lines = ["\t".join(COLUMNS)]
    for row, versions in sorted(table.items()):
        if versions:
            lines.append("\t".join((" ".join(sorted(versions, key=version_key)), *row)))
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
