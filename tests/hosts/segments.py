"""Makes shared memory on a test host, as engines do, and holds it in every way that a process can.

Copied to the host and run there:

    python3 segments.py hold KIND PATH OWNER   make PATH as user OWNER, hold it by KIND, print "held", until killed
    python3 segments.py churn SECONDS FILE KIND...   make, hold and remove segments; what is lost goes into FILE
    python3 segments.py clean NUMBER OWNER     clean up after OWNER as the library does, NUMBER times, without its long
                                               grace; print the names that went, and those that had to
"""

import array
import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import pwd
import random
import socket
import subprocess
import sys
import threading
import time

SIZE = 4096
NAMES = ("psm_%s", "sem.mp-%s", "sem.loky-%s", "nccl-%s", "torch_1_%s", "cuda.shm.0.%s", "vllm_dist_%s", "my-vllm-%s",
         "vllm_offload_%s.mmap", "sglang_loads_%s_1.shm", "sgl_shm_mq_1_%s", "sgl_shm_mm_1_%s")  # fmt: skip


def make(path, mode=os.O_RDWR):
    handle = os.open(path, os.O_CREAT | os.O_EXCL | mode, 0o600)
    os.truncate(path, SIZE)
    return handle


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Mapping:
    """Maps a file and closes it; Python's own mmap keeps it open, too."""

    def __init__(self, handle, protection=mmap.PROT_READ | mmap.PROT_WRITE):
        self.at = LIBC.mmap(None, SIZE, protection, mmap.MAP_SHARED, handle, 0)
        os.close(handle)
        assert self.at != ctypes.c_void_p(-1).value, ctypes.get_errno()

    def __del__(self):
        LIBC.munmap(self.at, SIZE)


def mapped(path):
    """Mapped, with the file closed."""
    return Mapping(make(path))


def read_only(path):
    os.close(make(path))
    return Mapping(os.open(path, os.O_RDONLY), mmap.PROT_READ)


def opened(path):
    """Open, without a mapping."""
    return os.fdopen(make(path), "rb")


def semaphore(path):
    """Mapped under another name than it has now: maps shows that one, as deleted."""
    temporary = path + ".new"
    held = mapped(temporary)
    os.link(temporary, path)
    os.unlink(temporary)
    return held


def namespace(path):
    """Seen only in a mount namespace of its own, under another name."""
    os.close(make(path))
    if LIBC.unshare(0x00020000):  # CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    for command in ("mount --make-rprivate /", "mount --bind /dev/shm /mnt", "umount -l /dev/shm"):
        subprocess.run(command.split(), check=True)
    return os.open(path.replace("/dev/shm", "/mnt"), os.O_RDWR)


def in_flight(path):
    """Sent through a socket and not received yet: no process shows it."""
    handle = make(path)
    one, two = socket.socketpair()
    one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [handle]))])
    os.close(handle)
    return one, two


def headless(path):
    """Mapped by a process whose main thread has ended."""
    held = mapped(path)
    threading.Thread(target=lambda: (say(), time.sleep(3600), held)).start()
    LIBC.pthread_exit(None)


def nobody(path):
    """On its way between two processes, and held by none."""
    os.close(make(path))


KINDS = {f.__name__: f for f in (mapped, read_only, opened, semaphore, namespace, in_flight, headless, nobody)}


def say():
    print("held", flush=True)


def hold(kind, path, owner):
    if kind == "headless":
        threading.Timer(0.2, lambda: os.chown(path, pwd.getpwnam(owner).pw_uid, -1)).start()
    held = KINDS[kind](path)
    os.chown(path.replace("/dev/shm", "/mnt") if kind == "namespace" else path, pwd.getpwnam(owner).pw_uid, -1)
    say()
    time.sleep(3600)
    return held


def churn(seconds, lost, *kinds):
    """Segments come and go at random times, held by some of the kinds; some are mapped late."""
    end, live = time.monotonic() + float(seconds), []
    while time.monotonic() < end or live:
        now = time.monotonic()
        for item in list(live):
            until, path, inode, held = item
            try:
                if os.stat(path).st_ino != inode:
                    raise FileNotFoundError
                if now > until:
                    if held is None:
                        os.close(os.open(path, os.O_RDWR))  # the receiver opens it at last
                    os.unlink(path)
                    live.remove(item)
            except FileNotFoundError:
                with open(lost, "a") as stream:
                    print(path, "held" if held else "on its way", file=stream)
                live.remove(item)
        if now < end and len(live) < 200:
            path = "/dev/shm/" + random.choice(NAMES) % os.urandom(4).hex()
            kind = random.choice(kinds)
            if kind != "nobody" and random.random() < 0.3:
                handle = make(path)
                os.close(handle)
                time.sleep(random.random() / 20)  # created, not yet mapped
                held = Mapping(os.open(path, os.O_RDWR))
            else:
                held = KINDS[kind](path)
            live.append((now + random.uniform(0.1, 12), path, os.stat(path).st_ino, held))
        time.sleep(0.005)


def clean(number, owner):
    """Each guard in turn alone: what /proc shows on a kernel without leases, and the lease where that shows nothing."""
    sys.path.insert(0, "/usr/local/lib/servewright/host.pyz")
    from servewright_host import shm

    def refuse(handle, *_command):
        raise OSError(errno.EINVAL, "no leases here")

    uid, grace = pwd.getpwnam(owner).pw_uid, 2
    guards = [(shm.held, refuse), (set, fcntl.fcntl)]
    dead, gone = set(), []
    for turn in [*range(int(number)), None]:
        if turn is None:
            time.sleep(grace)
        else:
            dead.add(f"psm_dead_{turn}")
            nobody(f"/dev/shm/psm_dead_{turn}")
            os.chown(f"/dev/shm/psm_dead_{turn}", uid, -1)
        shm.held, fcntl.fcntl = guards[(turn or 0) % 2]
        gone += shm.clean("neighbour", owner, grace=grace, shared_grace=0, report=lambda line: None)
        time.sleep(random.random() / 10)
    json.dump([gone, sorted(dead)], sys.stdout)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        {"hold": hold, "churn": churn, "clean": clean}[sys.argv[1]](*sys.argv[2:])
