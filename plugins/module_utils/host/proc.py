"""Processes, read from /proc. A process that ends while it is read gives None."""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

# Rows of /proc/PID/limits, and what setrlimit(2) and systemd call them.
_LIMITS = {
    "Max cpu time": "cpu",
    "Max file size": "fsize",
    "Max data size": "data",
    "Max stack size": "stack",
    "Max core file size": "core",
    "Max resident set": "rss",
    "Max processes": "nproc",
    "Max open files": "nofile",
    "Max locked memory": "memlock",
    "Max address space": "as",
    "Max file locks": "locks",
    "Max pending signals": "sigpending",
    "Max msgqueue size": "msgqueue",
    "Max nice priority": "nice",
    "Max realtime priority": "rtprio",
    "Max realtime timeout": "rttime",
}
_TITLE = 26  # columns
_DELETED = " (deleted)"
# States in which a process does nothing and answers nothing (proc_pid_status(5)).
_STUCK = {
    "T": "is stopped by a signal ('kill -CONT {}' lets it go on)",
    "t": "is stopped by a debugger",
    "D": "waits in the kernel, for a device or a file system",
    "Z": "has ended, and its parent has not noticed",
}


def _read(pid, name):
    try:
        with open("/proc/%s/%s" % (pid, name), "rb") as stream:
            return stream.read()
    except OSError:
        return None


def argv(pid):
    """Argument list of a process as it stands in its memory now."""
    data = _read(pid, "cmdline")
    return None if data is None else [word.decode("utf-8", "surrogateescape") for word in data.split(b"\0")[:-1]]


def environment(pid):
    """Environment a process was started with, as it stands in its memory now."""
    data = _read(pid, "environ")
    if data is None:
        return None
    pairs = (item.split(b"=", 1) for item in data.split(b"\0") if b"=" in item)
    return {name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape") for name, value in pairs}


def status(pid):
    """Fields of /proc/PID/status."""
    data = _read(pid, "status")
    if data is None:
        return None
    return dict(line.split(":", 1) for line in data.decode("utf-8", "replace").splitlines() if ":" in line)


def name(pid):
    fields = status(pid)
    return None if fields is None else fields["Name"].strip()


def stuck(pid):
    """Why a process does nothing, as a sentence about it; None when it can run."""
    words = _STUCK.get((status(pid) or {}).get("State", "").strip()[:1])
    return words and f"{describe(pid)} {words.format(pid)}"


def uid(pid):
    """Real user id."""
    fields = status(pid)
    return None if fields is None else int(fields["Uid"].split()[0])


def limits(pid):
    """Limits of a process, each a number or "unlimited": the soft one by its name, the hard one as "<name>.hard"."""
    data = _read(pid, "limits")
    if data is None:
        return None
    out = {}
    for line in data.decode().splitlines():
        short = _LIMITS.get(line[:_TITLE].strip())
        if short:
            soft, hard = (word if word == "unlimited" else int(word) for word in line[_TITLE:].split()[:2])
            out.update({short: soft, short + ".hard": hard})
    return out


def priority(pid):
    """How the kernel treats the main thread of a process beside others: `nice` and `oom_score_adj`."""
    adjustment = _read(pid, "oom_score_adj")
    try:
        return {"nice": os.getpriority(os.PRIO_PROCESS, pid), "oom_score_adj": int(adjustment)}
    except (ProcessLookupError, TypeError):
        return None


def maps(pid):
    """Text of /proc/PID/maps; empty for a process that has ended or may not be looked at."""
    return (_read(pid, "maps") or b"").decode("utf-8", "surrogateescape")


class Mapping(NamedTuple):
    """A file in the memory of a process; `deleted`: it is gone from its path, or another one is there now."""

    path: str
    deleted: bool
    device: str
    inode: str
    region: str  # its first place in memory, as in /proc/PID/map_files


def mapped(pid):
    """The files that a process maps, each once."""
    found = {}
    for line in maps(pid).splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/"):
            region, _permissions, _offset, device, inode, path = fields
            gone = path.endswith(_DELETED)
            path = path[: -len(_DELETED)] if gone else path
            found.setdefault((path, gone, device, inode), Mapping(path, gone, device, inode, region))
    return list(found.values())


def read_bytes(pid):
    """Bytes a process has read, from files and from the page cache."""
    data = _read(pid, "io")
    if data is None:
        return 0
    return int(data.split(b"rchar: ", 1)[1].split(b"\n", 1)[0])


def private_bytes(pid):
    """Memory that is free again when the process ends: what no file backs."""
    fields = status(pid) or {}
    return sum(int(fields.get(name, "0").split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))


def most_open_files():
    """Most open files this kernel and name space grant (a limit above it is clamped without a word), or 0: no bound."""
    value = (limits(1) or {}).get("nofile", 0)
    return value if isinstance(value, int) else 0


def unit(pid):
    """Name of the systemd unit a process belongs to, or "": below slices, the outermost one.

    What is inside of it has any name: the manager of a user, or of a container, has units of its own.
    """
    for part in _below(_manager_group(), _group(pid)).split("/"):
        if part.endswith((".service", ".scope")):
            return part
        if part and not part.endswith(".slice"):
            break
    return ""


def _group(pid):
    """Path of a process in systemd's hierarchy of control groups: its own in version 1, else the only one."""
    lines = (_read(pid, "cgroup") or b"").decode("utf-8", "replace").splitlines()
    paths = dict(line.split(":", 2)[1:] for line in lines)
    return paths.get("name=systemd", paths.get("", ""))


@cache
def _manager_group():
    """That of PID 1, which stays where it is: read once, not beside each of all processes."""
    return _group(1)


def _below(manager, group):
    """A path as systemd sees it: in a container that shares its host's name space, PID 1 is not at the top."""
    top = manager[: -len("/init.scope")] if manager.endswith("/init.scope") else ""
    return group[len(top) :] if group.startswith(top + "/") else ""


def same_processes(pid):
    """True when a process is of this host, not of a container on it: they number processes in the same name space."""
    try:
        return os.path.samefile(f"/proc/{pid}/ns/pid", "/proc/self/ns/pid")
    except OSError:
        return False


def all_pids():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def describe(pid):
    """A process named for a person: pid, program and unit."""
    words = " ".join(argv(pid) or [name(pid) or "?"]).split()  # a process that sets its title pads it with spaces
    where = unit(pid)
    return "pid %d (%s%s)" % (pid, " ".join(words)[:80], ", " + where if where else "")
