"""Boots the hosts of the scenario and keeps them for as long as the inventory that it writes is there.

Hosts end with the process that made them, and molecule has none that lives from create to destroy. So this starts
one in the background, and returns when the hosts are up.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from tests.simulator.install import install
from tests.testbed import Testbed, TestbedError
from tests.testbed.locks import locked

NAMES = ("gpu1", "gpu2")
LONGEST = 3600.0
"""Seconds after which hosts are given up that nobody has destroyed."""


def start(inventory: Path) -> int:
    """Start the keeper, and give the exit code once the hosts are up or cannot be had."""
    keeper = subprocess.Popen(
        [sys.executable, "-m", __spec__.name, "--keep", inventory],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    assert keeper.stdout is not None
    print(keeper.stdout.read(), end="")
    return 0 if inventory.exists() else 1


def keep(inventory: Path) -> None:
    """Keep the hosts, and hold a lock beside the inventory until they are gone."""
    starter, end = os.getppid(), time.monotonic() + LONGEST
    with locked(inventory.with_suffix(".lock")), Testbed("molecule") as testbed:
        with ThreadPoolExecutor() as pool:
            hosts = list(pool.map(lambda name: testbed.boot(name, prepare=install), NAMES))
        if os.getppid() != starter:
            return  # stopped meanwhile, so nobody waits for the hosts, nor will destroy them
        inventory.write_text(yaml.safe_dump({"llm": {"hosts": {host.name: host.ansible_vars() for host in hosts}}}))
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)  # tells who started this that the hosts are up
        while inventory.exists() and time.monotonic() < end:
            time.sleep(0.1)


if __name__ == "__main__":
    *keeping, name = sys.argv[1:]
    if not keeping:
        sys.exit(start(Path(name)))
    try:
        keep(Path(name))
    except TestbedError as error:
        sys.exit(f"{error}")
