"""`python -m sglang.launch_server`."""

import sys

from engine_simulator import sglang_main

from sglang import __version__

if __name__ == "__main__":
    sglang_main.main(sys.argv[1:], __version__)
