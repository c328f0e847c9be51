"""Command line: `python3 -m tests.engines.environments [vllm] [sglang] [models] [smoke]`."""

from __future__ import annotations

import argparse
import sys

from tests.engines.environments import EnvironmentFailure, ensure_models, ensure_sglang, ensure_vllm
from tests.engines.environments.smoke import smoke

_BUILD = {"vllm": ensure_vllm, "sglang": ensure_sglang, "models": ensure_models}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.engines.environments",
        description="Build what is missing of the real engine environments and tiny models, and print where they are.",
    )
    parser.add_argument(
        "what",
        nargs="*",
        metavar="vllm|sglang|models|smoke",
        help="default: the first three; smoke starts each engine and asks it for a completion",
    )
    asked = parser.parse_args().what or list(_BUILD)
    for name in asked:
        if name not in _BUILD and name != "smoke":
            parser.error(f"unknown: {name} (vllm, sglang, models or smoke)")
    try:
        for name in asked:
            if name == "smoke":
                smoke()
            else:
                print(f"{name}\t{_BUILD[name]()}")
    except EnvironmentFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
