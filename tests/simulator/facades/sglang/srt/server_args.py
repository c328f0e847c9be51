"""The names by which a deploy tool checks a command line without starting SGLang."""

from __future__ import annotations

from engine_simulator import sglang_args
from engine_simulator.sglang_args import ServerArgs as ServerArgs

from sglang import __version__


def prepare_server_args(argv: list[str]) -> ServerArgs:
    return sglang_args.prepare_server_args(argv, __version__)
