"""Shared-memory cleanup that spares everything which may be alive.

A segment is removed only if all of this holds: its name is one that engines, Python or NCCL give, it belongs to the
service's user, no process of the host maps it or holds it open (told by device and inode, never by name: a semaphore
is renamed after it is mapped, and a pid in a name proves nothing), and it is older than the grace period.
"""

from __future__ import annotations

import fcntl
import fnmatch
import os
import pwd
import stat
import time

from . import paths, proc
from .files import make_folder

FOLDER = "/dev/shm"
GRACE_SECONDS = 5

# Name pattern, who makes it, where that was seen or read.
PATTERNS = (
    ("psm_*", "Python multiprocessing.shared_memory; vLLM message queues", "CPython 3.11; vLLM 0.32.0"),
    ("sem.mp-*", "Python multiprocessing semaphores", "CPython 3.11"),
    ("sem.loky-*", "joblib's worker pool in SGLang", "SGLang 0.5.17"),
    ("nccl-*", "NCCL's shared-memory transport", "NCCL 2.18 to 2.30"),
    ("torch_*", "PyTorch tensors shared between processes", "PyTorch 2.11"),
    ("vllm_dist_*", "vLLM's CPU communicator", "vLLM 0.32.0"),
    ("vllm_offload_*.mmap", "vLLM's CPU offload region", "vllm-project/vllm#54002"),
    ("*vllm*", "other vLLM segments", "vLLM 0.32.0"),
    ("sglang_loads_*", "SGLang's load figures", "SGLang 0.5.23"),
    ("sgl_shm_mq_*", "SGLang's message queues", "SGLang 0.5.23"),
    ("sgl_shm_mm_*", "SGLang's multimodal features", "SGLang 0.5.23"),
)


def known(name):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern, _who, _source in PATTERNS)


def held():
    """(device, inode) of every file that a process of this host maps or holds open.

    Needs root. A process that cannot be read although it is alive makes the answer incomplete, so that raises.
    """
    found = set()
    for pid in proc.all_pids():
        try:
            with open("/proc/%d/maps" % pid) as stream:
                for line in stream:
                    fields = line.split(None, 5)
                    if fields[4] != "0":
                        major, minor = fields[3].split(":")
                        found.add((os.makedev(int(major, 16), int(minor, 16)), int(fields[4])))
            for handle in os.listdir("/proc/%d/fd" % pid):
                try:
                    entry = os.stat("/proc/%d/fd/%s" % (pid, handle))
                except FileNotFoundError:
                    continue
                if stat.S_ISREG(entry.st_mode):
                    found.add((entry.st_dev, entry.st_ino))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended
    return found


def clean(user, grace=GRACE_SECONDS, folder=FOLDER, report=print):
    """Remove dead segments of a user. Gives their names; `report` gets one line a removal.

    Raises OSError when it is not sure (for instance without the right to see all processes): then nothing is removed.
    """
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        return []
    make_folder(paths.RUN)
    with open(os.path.join(paths.RUN, "shm.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        now = time.time()
        candidates = {}
        for name in os.listdir(folder):
            if not known(name):
                continue
            try:
                entry = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue
            age = now - max(entry.st_mtime, entry.st_ctime)
            if stat.S_ISREG(entry.st_mode) and entry.st_uid == uid and age >= grace:
                candidates[name] = entry
        if not candidates:
            return []
        live = held()
        removed = []
        for name, entry in sorted(candidates.items()):
            if (entry.st_dev, entry.st_ino) in live:
                continue
            path = os.path.join(folder, name)
            try:
                again = os.lstat(path)  # a new segment may have taken the name meanwhile
                if (again.st_dev, again.st_ino) != (entry.st_dev, entry.st_ino):
                    continue
                os.unlink(path)
            except FileNotFoundError:
                continue
            removed.append(name)
            report(
                "removed dead shared memory %s: %d bytes, owner %s, %d s old"
                % (path, entry.st_size, user, now - max(entry.st_mtime, entry.st_ctime))
            )
        return removed
