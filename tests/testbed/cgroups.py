"""A place of its own in every cgroup hierarchy for each host, so that its limits are its own."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from tests.testbed.errors import TestbedError

# one shell statement that moves the shell into the cgroups named before "--" and becomes the command after it
ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs"; shift; done; shift; exec "$@"'


def own_cgroups(membership: str, mountinfo: str) -> dict[Path, frozenset[str]]:
    """The folders of a process's own cgroups, one a hierarchy, with its controllers (none named for v2).

    Args:
        membership: text of /proc/self/cgroup.
        mountinfo: text of /proc/self/mountinfo; hierarchies that are not mounted are left out.
    """
    mounts: list[tuple[set[str], str, str]] = []  # options (v1: its controllers too), root, mount point
    for line in mountinfo.splitlines():
        before, after = line.split(" - ", 1)
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, point = before.split()[3:5]
            mounts.append((set(options.split(",")) if kind == "cgroup" else set(), root, point))
    folders: dict[Path, frozenset[str]] = {}
    for line in membership.splitlines():
        _, names, path = line.split(":", 2)
        controllers = frozenset(filter(None, names.split(",")))
        for options_v1, root, point in mounts:
            if controllers <= options_v1 and bool(controllers) == bool(options_v1):
                # seen from a container, the mount may show only a part of the hierarchy
                below = path if root == "/" else path.removeprefix(root)
                folders.setdefault(Path(point) / below.strip("/"), controllers)
                break
    return folders


def machine_runs_systemd() -> bool:
    """Whether systemd manages the cgroups here, the check of sd_booted(3)."""
    return Path("/run/systemd/system").is_dir()


def controllers_for_hosts() -> set[str]:
    """The controllers whose limits hold for hosts, where this package makes their control groups."""
    found: set[str] = set()
    for folder, controllers in _own_cgroups().items():
        if controllers:
            found.update(name for name in controllers if "=" not in name)  # "name=systemd" limits nothing
        elif (folder / "cgroup.type").exists():
            found.update((folder / "cgroup.subtree_control").read_text().split())
        else:  # only the root has no type, and only the root hands controllers down while it has processes
            found.update((folder / "cgroup.controllers").read_text().split())
    return found


def command_in_own_cgroups(name: str, command: list[str]) -> tuple[list[str], list[Path]]:
    """The command line that runs command in cgroups of its own, and their folders, to be removed afterwards.

    Where systemd manages the machine it is asked for a delegated scope, as --keep-unit in systemd-nspawn(1)
    wants it. That path was tried in a test host, on pure cgroup v2 without a memory controller; that limits hold
    there follows from the documentation of Delegate=. Elsewhere the folders are made here, below the present
    cgroups, so that limits set on this process hold for its hosts too.
    """
    if machine_runs_systemd():
        return [
            "systemd-run",
            "--scope",
            "--quiet",
            "--collect",
            "--property=Delegate=yes",
            "--",
            *command,
        ], []
    folders = [parent / name for parent in _own_cgroups()]
    remove(folders)
    for folder in folders:
        _create(folder)
    return ["/bin/sh", "-c", ENTER, "sh", *map(str, folders), "--", *command], folders


def _own_cgroups() -> dict[Path, frozenset[str]]:
    return own_cgroups(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())


def _create(folder: Path) -> None:
    parent = folder.parent
    if (parent / "cgroup.controllers").exists():
        for controller in (parent / "cgroup.controllers").read_text().split():
            # v2 hands none down from a cgroup that has processes: the host works, but its limits do not hold
            with contextlib.suppress(OSError):
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")
    folder.mkdir()
    for setting in ("cpuset.cpus", "cpuset.mems"):
        # v1 lets no process into a cpuset that has not been given processors and memory
        if (folder / setting).exists() and not (folder / "cgroup.controllers").exists():
            (folder / setting).write_text((parent / setting).read_text())


def remove(folders: Iterable[Path], patience: float = 2.0) -> None:
    """Remove cgroups whose processes have ended.

    The kernel may agree a moment later; after patience seconds there is a TestbedError.
    """
    deadline = time.monotonic() + patience
    for folder in folders:
        while folder.exists():
            for path, _, _ in os.walk(folder, topdown=False):
                try:
                    Path(path).rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        raise TestbedError(f"the control group {path} still has processes") from None
                    time.sleep(0.01)
