from __future__ import annotations

import os
import time
from contextlib import contextmanager

capturing = None


def _models():
    return [name for name in os.environ.get("FAKE_GPUS", "").split(",") if name]


def is_available():
    return bool(_models())


def device_count():
    return len(_models())


def get_device_name(index):
    return _models()[index]


def get_device_capability(index):
    return (9, 0)


def set_device(device):
    pass


def synchronize():
    pass


class CUDAGraph:
    def __init__(self):
        self.calls = []

    def replay(self):
        for call in self.calls:
            call()


@contextmanager
def graph(graph, capture_error_mode):
    global capturing
    capturing = graph
    yield
    capturing = None


class Event:
    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3
