"""Shared-memory cleanup that spares everything which may be alive.

A segment is removed only if all of this holds: its name is one that engines, Python or NCCL give, it belongs to the
service's user, no process of the host maps it or holds it open (told by device and inode, never by name: a semaphore
is renamed after it is mapped, and a pid in a name proves nothing), and it is older than the grace period.

A /dev/shm that a unit has for itself is another file system: nothing in it is seen here, and it dies with the unit. A
process that shares this one from another mount namespace is seen, since device and inode are the same there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import os
import pwd
import re
import stat
import time

from . import paths, proc
from .errors import HostError
from .files import make_folder

FOLDER = "/dev/shm"
# A segment is not held between its creation and its first mapping: some milliseconds.
GRACE_SECONDS = 5
# While other processes of the same user live, a segment may be on its way between two of them and held by neither:
# SGLang's tokenizer closes the tensors of an image before the scheduler opens them, and that may wait in a queue. Ten
# minutes is what SGLang 0.5.23's own sweep takes for such names (utils/stale_shm_cleanup.py).
SHARED_GRACE_SECONDS = 600

# Name pattern, engine, versions in which it was seen or read, who makes it and where that is told. All rows hold for
# every service: a release may have to clean up after another engine or version. Left out on purpose:
# multi_tokenizer_args_<pid>, which a live SGLang holds nowhere and opens again for each new worker.
PATTERNS = (
    ("psm_*", "any", "CPython 3.8 to 3.13", "multiprocessing.shared_memory; vLLM's message queues"),
    ("sem.mp-*", "any", "CPython 3.4 to 3.13", "multiprocessing's semaphores, through glibc's sem_open"),
    ("sem.loky-*", "sglang", "0.5.17 to 0.5.23", "joblib's pool; named in sglang utils/stale_shm_cleanup.py"),
    ("nccl-*", "any", "NCCL 2.18 to 2.30", "NCCL's shared-memory transport, nccl src/misc/shmutils.cc"),
    ("torch_*", "any", "PyTorch 2.0 to 2.13", "tensors shared between processes, torch MapAllocator"),
    ("cuda.shm.*", "any", "CUDA 12 to 13", "CUDA's IPC; named in sglang utils/stale_shm_cleanup.py"),
    ("vllm_dist_*", "vllm", "0.32.0", "the CPU communicator; seen"),
    ("vllm_offload_*.mmap", "vllm", "0.26 to 0.32.0", "the region of offloaded KV cache, vllm-project/vllm#54002"),
    ("VLLM_OBJECT_STORAGE_SHM_BUFFER*", "vllm", "0.11 to 0.32.0", "the cache of multimodal inputs, vllm/envs.py"),
    ("*vllm*", "vllm", "0.32.0", "names that users and connectors choose"),
    ("sglang_loads_*", "sglang", "0.5.23", "load figures; stays also after SIGTERM; seen"),
    ("sgl_shm_*", "sglang", "0.5.23", "message queues (mq), multimodal tensors (mm), utils/stale_shm_cleanup.py"),
)

_CAP_SYS_PTRACE = 19


def known(name):
    return any(fnmatch.fnmatchcase(name, row[0]) for row in PATTERNS)


def held(inodes):
    """(device, inode) of every file that a process of this host maps, or holds open by one of some inode numbers.

    Raises HostError when it cannot see them all: a process that is hidden or cannot be read may hold anything.
    """
    if not int((proc.status("self") or {}).get("CapEff", "0"), 16) >> _CAP_SYS_PTRACE & 1:
        raise HostError("without CAP_SYS_PTRACE not all processes can be seen (/proc may be mounted with hidepid)")
    found = set()
    for pid in proc.all_pids():
        try:
            if not _mapped(str(pid), found):
                # A main thread that has ended shows no memory, though others of the process go on.
                for thread in os.listdir("/proc/%d/task" % pid):
                    _mapped("%d/task/%s" % (pid, thread), found)
                    _open("%d/task/%s" % (pid, thread), inodes, found)
            _open(str(pid), inodes, found)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended
        except OSError as error:
            raise HostError("cannot see what %s holds: %s" % (proc.describe(pid), error.strerror)) from None
    return found


def _mapped(process, found):
    """Add the files that a process of /proc maps; gives False when it has no memory."""
    empty = True
    with open("/proc/%s/maps" % process, errors="replace") as stream:
        for line in stream:
            empty = False
            fields = line.split(None, 5)
            if fields[4] != "0":
                major, minor = fields[3].split(":")
                found.add((os.makedev(int(major, 16), int(minor, 16)), int(fields[4])))
    return not empty


def _open(process, inodes, found):
    """Add the files that a process of /proc holds open by one of some inode numbers.

    stat asks the file system of a file, and one that does not answer (NFS without its server) would hold up this and,
    by the lock, every start of the host. So the kernel alone is asked for the number first, which it tells since 5.14.
    """
    folder = "/proc/%s/" % process
    for handle in os.listdir(folder + "fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            with open(folder + "fdinfo/" + handle, errors="replace") as stream:
                number = re.search(r"^ino:\s*(\d+)$", stream.read(), re.MULTILINE)
            if number and int(number.group(1)) not in inodes:
                continue
            entry = os.stat(folder + "fd/" + handle)
            if stat.S_ISREG(entry.st_mode):
                found.add((entry.st_dev, entry.st_ino))


def clean(service, user, grace=GRACE_SECONDS, shared_grace=SHARED_GRACE_SECONDS, folder=FOLDER, report=print):
    """Remove dead segments of a service's user. Gives their names; `report` gets one line a removal.

    Runs as root, because only root sees what all processes hold; but acts on a file as the user of the service, so that
    the kernel itself keeps it from removing a file of anybody else, whatever happens between a look and an act.
    Raises HostError when it is not sure: then nothing is removed.
    """
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        return []
    make_folder(paths.RUN)
    try:
        with open(os.path.join(paths.RUN, "shm.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            candidates = _candidates(folder, uid, grace)
            if candidates and _others(service, uid):
                candidates = {name: entry for name, entry in candidates.items() if _age(entry) >= shared_grace}
            live = held({entry.st_ino for entry in candidates.values()}) if candidates else set()
            removed = []
            for name, entry in sorted(candidates.items()):
                path = os.path.join(folder, name)
                if (entry.st_dev, entry.st_ino) not in live and _remove(path, entry, uid):
                    removed.append(name)
                    numbers = (path, entry.st_size, user, _age(entry))
                    report("removed dead shared memory %s: %d bytes, owner %s, %d s old" % numbers)
            return removed
    except OSError as error:
        raise HostError(f"cannot clean {folder}: {error}") from None


def _candidates(folder, uid, grace):
    """Files of a user with a known name and age, by name."""
    found = {}
    for name in filter(known, os.listdir(folder)):
        with contextlib.suppress(FileNotFoundError):
            entry = os.lstat(os.path.join(folder, name))
            if stat.S_ISREG(entry.st_mode) and entry.st_uid == uid and _age(entry) >= grace:
                found[name] = entry
    return found


def _age(entry):
    """Seconds since a file was made or last changed. Negative after the clock was set back: then it is spared."""
    return time.time() - max(entry.st_mtime, entry.st_ctime)


def _others(service, uid):
    """True when the user has a process outside of the service's unit, whose segments these may be."""
    unit = paths.unit_name(service)
    return any(proc.uid(pid) == uid and proc.unit(pid) != unit for pid in proc.all_pids())


def _remove(path, entry, uid):
    """Remove a file as a user, if it still is the file `entry` and nobody has it open; gives True when it did."""
    with _acting_as(uid):
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False  # gone, or not ours any more
        try:
            now = os.fstat(handle)
            if (now.st_dev, now.st_ino) != (entry.st_dev, entry.st_ino):
                return False  # a new segment has taken the name
            # The kernel grants a write lease only on a file that nothing else has open or maps, also where /proc does
            # not show it, and holds up whoever opens it until the lease is given back: there is no gap from here on.
            try:
                fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except OSError as error:
                if error.errno != errno.EINVAL:  # a kernel without leases on tmpfs: /proc has to be enough
                    return False
            os.unlink(path)
            return True
        except FileNotFoundError:
            return False
        finally:
            os.close(handle)


@contextlib.contextmanager
def _acting_as(uid):
    """Touch files with the rights of a user for the length of a block; /dev/shm is sticky, so only with that user's."""
    before = os.geteuid()
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(before)
