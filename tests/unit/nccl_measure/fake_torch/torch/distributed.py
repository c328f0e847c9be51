from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

RANK = RANKS = None
_FOLDER = None
_number = 0


def is_available():
    return True


def is_nccl_available():
    return "FAKE_WITHOUT_NCCL" not in os.environ


class FileStore:
    def __init__(self, path, ranks):
        self.path = Path(path)
        self.path.mkdir(exist_ok=True)

    def set(self, key, value):
        (self.path / key).write_text(value, encoding="utf-8")

    def wait(self, keys, limit):
        while not all((self.path / key).exists() for key in keys):
            time.sleep(0.001)


def _fault(name):
    from torch import fault

    return fault(name)


def init_process_group(backend, store, rank, world_size, timeout, device_id=None):
    global RANK, RANKS, _FOLDER
    RANK, RANKS, _FOLDER = rank, world_size, store.path
    os.environ["NCCL_FAKE_BEGAN"] = str(time.monotonic())
    time.sleep(float(os.environ.get("FAKE_START_SECONDS", "0")))
    if _fault("init hang"):
        time.sleep(60)
    if os.environ.get("NCCL_ALGO") == "Nonsense":
        raise RuntimeError("NCCL error: invalid usage, unknown NCCL_ALGO Nonsense")
    _exchange([0])


def _exchange(values):
    """Everybody's values, once all have given theirs."""
    global _number
    _number += 1
    part = _FOLDER / f"{_number}-{RANK}.part"
    part.write_text(json.dumps(values), encoding="utf-8")
    part.rename(part.with_suffix(""))
    found = []
    for rank in range(RANKS):
        path = _FOLDER / f"{_number}-{rank}"
        while not path.exists():
            time.sleep(0.0005)
        found.append(json.loads(path.read_text(encoding="utf-8")))
    return found


def _collective(work):
    from torch import cuda

    if cuda.capturing:
        cuda.capturing.calls.append(work)
        return
    work()


def all_reduce(tensor):
    if _number == 1 and _fault("first hang"):
        time.sleep(60)
    if _number == 1 and _fault("first wrong"):
        tensor.data[0] = 7.0
    if _number > 3 and _fault("late hang"):
        time.sleep(60)
    if _number > 3 and _fault("crash"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if _number > 3 and _fault("memory"):
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    def work():
        slow = os.environ.get("FAKE_SLOW_TABLE")
        if slow and slow in Path(os.environ["NCCL_TUNER_CONFIG_FILE"]).read_text(encoding="utf-8"):
            time.sleep(0.05)  # far above what the exchange takes on a busy machine
        rows = _exchange(tensor.data)
        tensor.data[:] = [sum(column) for column in zip(*rows, strict=True)]
        if len(tensor.data) > 1 and _fault("garbage"):
            tensor.data[3] = float("nan")

    _collective(work)


def all_gather_into_tensor(target, source):
    def work():
        target.data[:] = [value for row in _exchange(source.data) for value in row]

    _collective(work)


def reduce_scatter_tensor(target, source):
    def work():
        whole = [sum(column) for column in zip(*_exchange(source.data), strict=True)]
        part = len(whole) // RANKS
        target.data[:] = whole[RANK * part : (RANK + 1) * part]

    _collective(work)
