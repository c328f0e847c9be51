"""The options that every bench has."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.record import FOLDER


def options(name: str, description: str, repeats: int) -> argparse.ArgumentParser:
    """A parser that a bench may add to; `name` is that of its module and of its record."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{name}", description=description)
    parser.add_argument("--repeats", type=int, default=repeats, help="counted rounds (default: %(default)s)")
    parser.add_argument("--record", type=Path, default=FOLDER / f"{name}.json", help="where to write the record")
    return parser
