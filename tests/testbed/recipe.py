"""What the golden image is: a small Debian with systemd, SSH and Python, as on a managed host."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from tests.testbed.command import execute
from tests.testbed.machine import DEBIAN_KEYRING

SUITE = "bookworm"
"""Debian 12; `boot` takes others."""

PACKAGES = (
    "ca-certificates",
    "dbus",
    "iproute2",
    "iputils-ping",
    "libnss-systemd",  # DynamicUser= needs it to name its users
    "libnuma1",  # vLLM on a CPU needs it
    "libpam-systemd",
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",  # Ansible's package modules need it, also in check mode
    "sudo",
    "systemd",
    "systemd-sysv",
)

# nothing a test looks at
EXCLUDED_PATHS = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")

# units that fail in a container without consoles and without a way to the outside, or work at random times
MASKED_UNITS = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty-static.service",
    "getty@tty1.service",
    "systemd-pstore.service",
)

ROOTFS = Path(__file__).parent / "rootfs"
"""Files that are laid over the installed system, by their path in it."""


def overlay_files() -> list[Path]:
    """The files below ROOTFS, as paths relative to it, in a fixed order."""
    return sorted(path.relative_to(ROOTFS) for path in ROOTFS.rglob("*") if path.is_file())


def digest(suite: str) -> str:
    """Names the recipe: this file, because it holds the steps too, and every file that is laid over."""
    text = hashlib.sha256(suite.encode() + Path(__file__).read_bytes())
    for path in overlay_files():
        text.update(f"\0{path}\0".encode() + (ROOTFS / path).read_bytes())
    return text.hexdigest()[:16]


def mirrors(suite: str) -> list[str]:
    """This machine's own sources of the suite, as sources.list lines; none on another distribution.

    Given none, mmdebstrap takes Debian's public mirror, and would go past a mirror set up for this machine.
    """
    fields = "$(ORIGIN)\t$(CODENAME)\t$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)"
    targets = execute(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"])
    found: dict[str, None] = {}  # an ordered set: apt lists a target once per architecture
    for line in targets.splitlines():
        origin, codename, uri, release, component = line.split("\t")
        if origin == "Debian" and codename.split("-")[0] == suite and component == "main":
            found[f"deb {uri} {release} main"] = None
    return list(found) if any(line.split()[2] == suite for line in found) else []


def apt_options(configuration: str) -> list[str]:
    """How this machine's apt reaches its mirrors (proxies, certificates, checks), from `apt-config dump`."""
    ways = ("Acquire::http", "Acquire::Check-", "Acquire::Retries")  # the first begins "Acquire::https" too
    return [
        line.removesuffix(";")
        for line in configuration.splitlines()
        if line.startswith(ways) and not line.endswith(' "";')
    ]


def build(suite: str, root: Path, authorized_key: str, host_key: Path, lock: int) -> None:
    """Install the system into the new folder root.

    Args:
        suite: of Debian, by its code name.
        authorized_key: public key that may log in as root.
        host_key: private SSH host key; its public half lies beside it with the suffix .pub.
        lock: file descriptor that the installer inherits, so that the lock is held for as long as it writes.

    Raises:
        CommandFailed: with the installer's output.
    """
    options = [f"--aptopt={option}" for option in apt_options(execute(["apt-config", "dump"]))]
    options += [f"--dpkgopt=path-exclude={path}" for path in EXCLUDED_PATHS]
    options += ["--dpkgopt=force-unsafe-io"]  # a crash of the machine costs a new build, no more
    execute(
        [
            # ends with this process, and in namespaces of its own, so that no processes and no mounts are left
            *("setpriv", "--pdeathsig", "KILL"),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
            *(f"--keyring={DEBIAN_KEYRING}", *options, suite, str(root), *mirrors(suite)),
        ],
        env={**os.environ, "TMPDIR": str(root.parent)},
        pass_fds=[lock],
    )
    # what the installer took over from this machine
    for name in ("etc/resolv.conf", "etc/apt/apt.conf.d/99mmdebstrap", "var/lib/dbus/machine-id"):
        (root / name).unlink(missing_ok=True)
    (root / "etc/machine-id").write_text("")
    execute(["chroot", str(root), "systemctl", "--quiet", "mask", *MASKED_UNITS])
    for path in overlay_files():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOTFS / path, target)
        target.chmod(0o755 if os.access(ROOTFS / path, os.X_OK) else 0o644)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    for source in (host_key, host_key.with_suffix(".pub")):
        shutil.copy(source, root / "etc/ssh" / f"ssh_host_ed25519_key{source.suffix}")
    (root / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    (root / "root/.ssh/authorized_keys").write_text(authorized_key)
