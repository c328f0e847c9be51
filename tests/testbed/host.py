"""One test host: a disk, a network card and a power switch."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path

from tests.testbed import cgroups, process
from tests.testbed.command import execute
from tests.testbed.errors import CommandFailed, HostDegraded, TestbedError
from tests.testbed.image import Image
from tests.testbed.network import Network
from tests.testbed.trees import remove_tree

REBOOT = 133
"""Exit status of systemd-nspawn --keep-unit when the host asked for a reboot, systemd-nspawn(1)."""


class Host:
    """A host of a Testbed; made by `Testbed.boot`.

    Attributes:
        name: its host name.
        ip: its address, the same for as long as the host exists; `address` is the same as an object.
        root: its file system, also while it is off; without what it mounts itself (/run, /tmp, /dev/shm).
        control_path: where SSH clients put the socket of a shared connection.
    """

    def __init__(
        self,
        name: str,
        ip: IPv4Address,
        *,
        folder: Path,
        control_path: Path,
        image: Image,
        network: Network,
        binds: Mapping[Path, str],
    ) -> None:
        self.name = name
        self.ip = str(ip)
        self.root = folder / "root"
        self.control_path = control_path
        self.address = ip
        self._folder = folder
        self._image = image
        self._network = network
        self._binds = binds
        self._cgroups: list[Path] = []
        self._container: subprocess.Popen[bytes] | None = None
        self._powered = False
        self._power = threading.RLock()
        self._make_disk()

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.ip}>"

    # --- power ---

    def boot(self, timeout: float = 60.0) -> None:
        """Switch on and wait until systemd has started everything.

        Raises:
            HostDegraded: it is up, but units failed.
            TestbedError: it is on already, or has not come up after timeout seconds.
        """
        with self._power:
            if self.is_on():
                raise TestbedError(f"{self.name} is on already")
            # A new card, because the kernel must not remember connections and settings from before. And no
            # old way in, because a shared SSH connection to the host as it was would hang.
            self._network.unplug(self.name, self.address)
            self._network.plug(self.name, self.address)
            self.control_path.unlink(missing_ok=True)
            self._powered = True
            self._container = self._start_container()
            threading.Thread(target=self._restart_on_reboot, args=(self._container,), daemon=True).start()
        self._wait_until_up(time.monotonic() + timeout)

    def power_cut(self) -> None:
        """Switch off at once: no process gets a signal it could catch, no peer a last packet. The disk stays.

        The machine's own page cache survives, so this finds no missing fsync.
        """
        with self._power:
            self._powered = False
            self._network.unplug(self.name, self.address)
            if self._container is not None and self._container.poll() is None:
                process.kill_container(self._container.pid)
                self._container.wait()

    def reboot(self, timeout: float = 60.0) -> None:
        """Shut down in order and start again. Raises as `boot` does."""
        before = self._init()
        self.run(["systemctl", "reboot"], check=False)  # the host may end the command before it has answered
        deadline = time.monotonic() + timeout
        while self._init_or_none() in (before, None):
            self._sleep(deadline, "did not reboot")
        self._wait_until_up(deadline)

    def is_on(self) -> bool:
        """Whether it runs; False also when it has shut itself down."""
        return self._container is not None and self._container.poll() in (None, REBOOT) and self._powered

    # --- network ---

    def network_off(self) -> None:
        """Pull the network cable; the host keeps its address and its connections hang."""
        self._network.set_cable(self.address, connected=False)

    def network_on(self) -> None:
        """Put the network cable back."""
        self._network.set_cable(self.address, connected=True)

    # --- ways in ---

    def run(
        self,
        command: str | Sequence[str],
        *,
        check: bool = True,
        user: str | None = None,
        input: str | None = None,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the host, past its network, so also when that is off. A string is for the shell.

        It runs outside of the host's control groups: limits of units do not hold for it.

        Raises:
            CommandFailed: it ended with another status than 0, and check is set.
            TestbedError: the host is off, or the command took more than timeout seconds.
        """
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        if user is not None:
            argv = ["sudo", "--set-home", f"--user={user}", "--", *argv]
        try:
            result = subprocess.run(
                process.inside(self._init(), argv),
                input=input or "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TestbedError(f"{self.name}: `{command}` still runs after {timeout:g} s") from error
        result.args = command
        if check and result.returncode != 0:
            raise CommandFailed(self.name, result)
        return result

    def ssh_options(self) -> list[str]:
        """The options with which ssh, scp and sftp get in, trust this host only and ignore the user's settings."""
        return [
            *("-F", "/dev/null", "-i", str(self._image.key), "-o", "IdentitiesOnly=yes"),
            *("-o", f"UserKnownHostsFile={self._image.known_hosts}", "-o", "GlobalKnownHostsFile=/dev/null"),
            *("-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR"),
        ]

    def ssh_command(self) -> list[str]:
        """The command line of a login as root; append a command to run that instead of a shell."""
        return ["ssh", *self.ssh_options(), f"root@{self.ip}"]

    def ansible_vars(self) -> dict[str, str]:
        """The inventory variables with which Ansible reaches the host.

        Ansible's ssh_args are left alone, so connections are shared as the configuration under test says.
        Only the socket is the host's own, because one named after the address would outlive the host.
        """
        return {
            "ansible_host": self.ip,
            "ansible_user": "root",
            "ansible_ssh_common_args": " ".join(self.ssh_options()),
            "ansible_control_path": str(self.control_path),
            "ansible_python_interpreter": "/usr/bin/python3",
        }

    def journal(self, lines: int = 200) -> str:
        """The end of the host's journal, or of what it wrote to its console when it is off."""
        if self._init_or_none() is None:
            return self._console(lines)
        return self.run(["journalctl", "--no-pager", f"--lines={lines}"], check=False).stdout

    # --- end ---

    def destroy(self) -> None:
        """Switch off and throw away, disk and all. May be called again."""
        self.power_cut()
        cgroups.remove(self._cgroups)
        self.control_path.unlink(missing_ok=True)
        remove_tree(self._folder)

    # --- inner parts ---

    def _make_disk(self) -> None:
        for name in ("upper", "work", "root"):
            (self._folder / name).mkdir(parents=True)
        layers = f"lowerdir={self._image.rootfs},upperdir={self._folder}/upper,workdir={self._folder}/work"
        try:
            # volatile: the disk is thrown away in the end, so nothing has to wait for it
            execute(["mount", "-t", "overlay", "servewright-testbed", "-o", f"{layers},volatile", str(self.root)])
        except CommandFailed as error:
            raise TestbedError(
                f"cannot mount an overlay in {self._folder} ({error.result.stderr.strip()}):"
                " set SERVEWRIGHT_TEST_CACHE to a folder on a disk with ext4, xfs or btrfs"
            ) from error
        (self.root / "etc/hostname").write_text(f"{self.name}\n")
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{self.ip} {self.name}\n")
        # a disk without one is on its first boot, on which systemd enables units by preset
        (self.root / "etc/machine-id").write_text(f"{secrets.token_hex(16)}\n")

    def _start_container(self) -> subprocess.Popen[bytes]:
        machine = self._network.namespace(self.name)
        command = [
            *(
                "systemd-nspawn",
                "--quiet",
                f"--directory={self.root}",
                f"--machine={machine}",
                f"--hostname={self.name}",
            ),
            # needs no systemd-machined, no systemd as PID 1 of this machine, and no settings of this machine
            *("--register=no", "--keep-unit", "--settings=no"),
            f"--network-namespace-path=/run/netns/{machine}",
            *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe"),
            *(f"--bind-ro={_escape(str(source))}:{_escape(target)}" for source, target in self._binds.items()),
            "/sbin/testbed-init",
        ]
        argv, self._cgroups = cgroups.command_in_own_cgroups(machine, command)
        # for the run that finds this one dead
        (self._folder / "host.json").write_text(
            json.dumps({"ip": self.ip, "cgroups": [str(folder) for folder in self._cgroups]})
        )
        with (self._folder / "console.log").open("ab") as console:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the tests, which then end the host in order
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
            )

    def _restart_on_reboot(self, container: subprocess.Popen[bytes]) -> None:
        while container.wait() == REBOOT:
            with self._power:
                if not self._powered:
                    return
                container = self._container = self._start_container()

    def _wait_until_up(self, deadline: float) -> None:
        while not ((init := self._init_or_none()) and Path(f"/proc/{init}/root/run/systemd/private").exists()):
            if not self.is_on():
                raise TestbedError(f"{self.name} went off while it booted:\n{self._console(30)}")
            self._sleep(deadline, "did not boot")
        left = max(1.0, deadline - time.monotonic())
        state = self.run(["systemctl", "is-system-running", "--wait"], check=False, timeout=left).stdout.strip()
        if state != "running":
            failed = self.run("systemctl list-units --failed --plain --no-legend --no-pager", check=False).stdout
            raise HostDegraded(
                f"{self.name} is {state or 'in an unknown state'} after its boot:\n{failed}{self.journal(30)}"
            )

    def _sleep(self, deadline: float, problem: str) -> None:
        if time.monotonic() > deadline:
            raise TestbedError(f"{self.name} {problem} in time:\n{self._console(30)}")
        time.sleep(0.005)

    def _init_or_none(self) -> int | None:
        container = self._container
        return process.init_of(container.pid) if container is not None and container.poll() is None else None

    def _init(self) -> int:
        init = self._init_or_none()
        if init is None:
            raise TestbedError(f"{self.name} is off")
        return init

    def _console(self, lines: int) -> str:
        path = self._folder / "console.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else ""


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:")
