"""pyinfra, the fastest peer, in a virtual environment of its own."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

from bench.fleet import DECLARED, PORT, SERVICE, Fleet
from bench.timing import Argv, BenchError
from tests.testbed import machine

VERSION = "3.10.0"


def program() -> Path:
    """Path of the program, installed with pip at the first call."""
    folder = machine.cache_folder() / f"pyinfra-{VERSION}"
    if not (folder / "installed").exists():
        venv.create(folder, clear=True, with_pip=True)
        pip: Argv = [folder / "bin/pip", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, "install", f"pyinfra=={VERSION}"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BenchError(f"pyinfra cannot be installed:\n{done.stderr}")
        (folder / "installed").touch()
    return folder / "bin/pyinfra"


def inventory(fleet: Fleet, folder: Path) -> Path:
    """Write the inventory of the fleet in pyinfra's form, and give its path."""
    options = fleet.hosts[0].ssh_options()
    trusted = next(word for word in options if word.startswith("UserKnownHostsFile=")).partition("=")[2]
    _pattern, key = Path(trusted).read_text().split(maxsplit=1)  # pyinfra knows no patterns, only names
    known_hosts = folder / "known_hosts"
    known_hosts.write_text("".join(f"{host.ip} {key.strip()}\n" for host in fleet.hosts))
    shared = {
        "ssh_user": "root",
        "ssh_key": options[options.index("-i") + 1],
        "ssh_known_hosts_file": str(known_hosts),
        "ssh_strict_host_key_checking": "yes",
        "files": str(fleet.files),
        "service": SERVICE,
        "user": f"llm-{SERVICE}",
        "url": f"http://127.0.0.1:{PORT}",
        "model": DECLARED["model"]["served_name"],
    }
    path = folder / "pyinfra_inventory.py"
    path.write_text(f"llm = ({[host.ip for host in fleet.hosts]!r}, {shared!r})\n")
    return path
