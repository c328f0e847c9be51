"""The names by which a deploy tool checks a command line without starting vLLM."""

from __future__ import annotations

import argparse

from engine_simulator import vllm_args
from engine_simulator.vllm_args import validate_parsed_serve_args as validate_parsed_serve_args

from vllm import __version__


def make_arg_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    return vllm_args.make_arg_parser(parser, __version__)
