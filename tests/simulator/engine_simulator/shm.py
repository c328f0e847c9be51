"""Shared memory files with the engines' names and real mappings.

The engines map them and many forget them, so a deploy tool meets three kinds: mapped by a living process,
left behind by a dead one, and a neighbour's. The double makes the same files by the same system calls.
"""

from __future__ import annotations

import mmap
import os
import pathlib
import secrets
import string

_maps: list[mmap.mmap] = []


def create(folder: str, name: str, size: int) -> str:
    """Make a sparse segment of `size` bytes (apparent) and map it in this process; returns its path."""
    path = f"{folder}/{name}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(fd, size)
    _maps.append(mmap.mmap(fd, size))
    os.close(fd)
    return path


def attach(path: str) -> None:
    """Map an existing segment; FileNotFoundError when somebody removed it in between."""
    fd = os.open(path, os.O_RDWR)
    _maps.append(mmap.mmap(fd, os.fstat(fd).st_size))
    os.close(fd)


def semaphore(folder: str) -> str:
    """A sem.mp-* as glibc makes it: a temporary name is mapped, then linked and unlinked.

    /proc/PID/maps keeps showing the temporary name as deleted, so only the inode tells its owner.
    """
    letters = string.ascii_letters + string.digits
    temporary = f"{folder}/sem.{''.join(secrets.choice(letters) for _ in range(6))}"
    path = f"{folder}/sem.mp-{''.join(secrets.choice(letters.lower()) for _ in range(8))}"
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, bytes(32))
    _maps.append(mmap.mmap(fd, 32))
    os.close(fd)
    os.link(temporary, path)
    pathlib.Path(temporary).unlink()
    return path


def nccl(folder: str, size: int = 9_637_888) -> str:
    """A segment of NCCL's SHM transport; about 9.6 MB each (NVIDIA/nccl#525)."""
    letters = string.ascii_letters + string.digits
    return create(folder, "nccl-" + "".join(secrets.choice(letters) for _ in range(6)), size)


def remove(paths: list[str]) -> None:
    for path in paths:
        pathlib.Path(path).unlink(missing_ok=True)  # somebody else's clean-up may be faster; the engines accept it


#: apparent sizes of vLLM's message queues and buffers as seen with 0.32.0, for one rank and for several
VLLM_SIZES = {False: (167772180, 251658260), True: (167772190, 251658260, 251658260, 25165836)}


def vllm_segments(folder: str, ranks: int, on_gpu: bool) -> list[str]:
    """Segments of an engine core with `ranks` workers; removed again at a clean stop."""
    paths = [create(folder, f"psm_{secrets.token_hex(4)}", size) for size in VLLM_SIZES[ranks > 1]]
    if ranks > 1 and not on_gpu:
        group = secrets.token_hex(16)
        members = "-".join(str(rank) for rank in range(ranks))
        for rank in range(ranks):
            paths.append(create(folder, f"vllm_dist_{group}-tp:0-[{members}]-cpushm_{rank}", 65536))
    paths += [nccl(folder) for _ in range(ranks if ranks > 1 and on_gpu else 0)]
    paths.append(semaphore(folder))
    return paths


def sglang_loads(folder: str) -> str:
    """The load snapshot segment, which survives every kind of stop."""
    return create(folder, f"sglang_loads_{secrets.token_hex(6)}_{secrets.token_hex(4)}.shm", 16396)


def sglang_segments(folder: str, ranks: int, on_gpu: bool) -> list[str]:
    """What a tensor-parallel group adds: the message queue, two semaphores, NCCL's files."""
    if ranks < 2:
        return []
    paths = [create(folder, f"sgl_shm_mq_{os.getpid()}_{secrets.token_hex(4)}", 25165836)]
    paths += [semaphore(folder), semaphore(folder)]
    paths += [nccl(folder) for _ in range(ranks if on_gpu else 0)]
    return paths
