"""Test hosts with one simulated engine each, for servewright and its peers alike."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from tests.hosts.commands import service
from tests.simulator.install import install
from tests.testbed import Host, Testbed

SERVICE = "kimi"
PORT = 30000
DECLARED = service(
    name=SERVICE,
    gpus=[0],
    parallelism={"tensor": 1},
    listen={"port": PORT},
    secrets={"HF_TOKEN": {"variable": "bench_token"}},
)


class Fleet:
    """Hosts that are booted as they are needed, and the inventory of those that are.

    `inventory` is for Ansible: the declared service, and in `stock_*` what the playbook of stock modules needs.
    `files` holds the unit, the environment and the host library as a deploy of servewright left them on the first host.
    """

    def __init__(self, testbed: Testbed, folder: Path):
        self.hosts: list[Host] = []
        self.inventory = folder / "inventory.yml"
        self.files = folder / "files"
        self.files.mkdir()
        self._testbed = testbed

    def grow(self, size: int) -> None:
        """Boot hosts until there are as many, and write the inventory."""
        names = [f"gpu{number}" for number in range(len(self.hosts) + 1, size + 1)]
        with ThreadPoolExecutor(4) as pool:
            self.hosts += pool.map(lambda name: self._testbed.boot(name, prepare=_prepare), names)
        variables = {
            "servewright_services": [DECLARED],
            "bench_token": "not-a-real-token",
            "stock_files": str(self.files),
            "stock_service": SERVICE,
            "stock_user": f"llm-{SERVICE}",
            "stock_url": f"http://127.0.0.1:{PORT}",
            "stock_model": DECLARED["model"]["served_name"],
        }
        members = {host.name: host.ansible_vars() for host in self.hosts}
        self.inventory.write_text(yaml.safe_dump({"llm": {"hosts": members, "vars": variables}}))

    def collect(self) -> None:
        """Take the files that a deploy left on the first host."""
        for path in (
            f"etc/systemd/system/{SERVICE}.service",
            f"etc/servewright/{SERVICE}/releases/1/environment",
            "usr/local/lib/servewright/host.pyz",
        ):
            source = self.hosts[0].root / path
            (self.files / source.name).write_bytes(source.read_bytes())

    def disconnect(self) -> None:
        """Close the SSH connections that Ansible shares, as they are when nobody has deployed for a minute."""
        for host in self.hosts:
            if host.control_path.exists():
                close = ["ssh", "-O", "exit", "-o", f"ControlPath={host.control_path}", host.ip]
                subprocess.run(close, capture_output=True, check=True)

    def sessions(self) -> int:
        """SSH sessions so far, of all hosts: each is one command that was executed remotely, or one file transfer."""
        return sum(_sessions(host) for host in self.hosts)


def _prepare(root: Path) -> None:
    install(root, engines=[("sglang", DECLARED["version"])])
    # for Fleet.sessions: at this level the server logs each session it starts
    (root / "etc/ssh/sshd_config.d/bench.conf").write_text("LogLevel VERBOSE\n")


def _sessions(host: Host) -> int:
    log = host.run(["journalctl", "--no-pager", "-o", "cat", "-t", "sshd"]).stdout
    return log.count("Starting session: ")
