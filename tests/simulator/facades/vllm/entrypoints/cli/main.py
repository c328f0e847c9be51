"""The `vllm` command."""

import sys

from engine_simulator import vllm_main

from vllm import __version__


def main() -> None:
    vllm_main.main(sys.argv[1:], __version__)


if __name__ == "__main__":
    main()
