"""What the machine needs before it can carry test hosts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.testbed.command import execute
from tests.testbed.errors import CommandFailed, TestbedError
from tests.testbed.locks import locked

DEBIAN_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

PACKAGE_OF_COMMAND = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "nsenter": "util-linux",
}

# bit numbers of capabilities(7)
CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21


def cache_folder() -> Path:
    """Where images and hosts are kept: $SERVEWRIGHT_TEST_CACHE, or a folder of its own below /var/cache."""
    folder = Path(os.environ.get("SERVEWRIGHT_TEST_CACHE") or "/var/cache/servewright-testbed").absolute()
    if set(str(folder)) & set(":,\\ "):
        raise TestbedError(
            f"SERVEWRIGHT_TEST_CACHE={folder}: use a path without colons, commas, backslashes and spaces"
        )
    return folder


def check_privileges() -> None:
    """Raise TestbedError unless this process may mount, make network namespaces and use overlayfs."""
    if os.geteuid() != 0:
        raise TestbedError("the test hosts need root: run the same command as root, for example with sudo")
    status = Path("/proc/self/status").read_text()
    effective = int(status.split("CapEff:")[1].split()[0], 16)
    if not (effective >> CAP_SYS_ADMIN & 1 and effective >> CAP_NET_ADMIN & 1):
        raise TestbedError(
            "the test hosts need the right to mount and to make networks (CAP_SYS_ADMIN, CAP_NET_ADMIN):"
            " run them on the machine itself or in a privileged container"
        )
    if "\toverlay\n" not in Path("/proc/filesystems").read_text():
        try:
            execute(["modprobe", "overlay"])
        except TestbedError as error:
            raise TestbedError(
                "this kernel has no overlayfs: load its module (modprobe overlay) or use a kernel that has it"
            ) from error


def missing_packages(package_of_command: Mapping[str, str] = PACKAGE_OF_COMMAND) -> list[str]:
    """The apt packages that this machine lacks."""
    missing = [package for command, package in package_of_command.items() if shutil.which(command) is None]
    # Ubuntu does not come with the keys of Debian's archive
    return missing if DEBIAN_KEYRING.exists() else [*missing, "debian-archive-keyring"]


def install_packages(cache: Path, package_of_command: Mapping[str, str] = PACKAGE_OF_COMMAND) -> None:
    """Install what is missing, as root. Raises TestbedError when that cannot be done."""
    packages = missing_packages(package_of_command)
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise TestbedError(f"cannot install {' '.join(packages)}: no apt-get here, use Debian 12 or Ubuntu 24.04")
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "apt.lock"):
        packages = missing_packages(package_of_command)  # another run may have installed them while this one waited
        if not packages:
            return
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        wait = "DPkg::Lock::Timeout=300"
        try:
            execute(["apt-get", "-q", "-o", wait, "update"], env=environment)
            install = ["apt-get", "-q", "-y", "-o", wait, "install", "--no-install-recommends", *packages]
            execute(install, env=environment)
        except CommandFailed as error:
            reason = (error.result.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise TestbedError(f"could not install {' '.join(packages)} with apt-get: {reason}") from error
