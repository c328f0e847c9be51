"""As much of torch as the probe uses, in plain Python: lists for tensors, files between processes for a network.

What FAKE_* variables in a case's environment say goes wrong: FAKE_FAULT names the fault, on rank 1.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

from . import cuda, distributed

__version__ = "0.fake"
version = SimpleNamespace(cuda="13.0")


class Dtype:
    def __init__(self, size):
        self.size = size


bfloat16, float16, float32, int32, int64 = Dtype(2), Dtype(2), Dtype(4), Dtype(4), Dtype(8)


def device(kind, index=0):
    return (kind, index)


def set_num_threads(count):
    pass


class Tensor:
    """One or two dimensions; rows of a two-dimensional one share its data."""

    def __init__(self, data, dtype=float32):
        self.data, self.dtype = data, dtype

    def element_size(self):
        return self.dtype.size

    def to(self, dtype):
        return Tensor(self.data, dtype)

    def item(self):
        return self.data[0]

    def __getitem__(self, row):
        return Tensor(self.data[row], self.dtype)

    def copy_(self, other):
        for mine, its in zip(self.data, other.data, strict=True):
            mine[:] = its

    def fill_(self, value):
        for place, row in enumerate(self.data):
            if isinstance(row, list):
                row[:] = [value] * len(row)
            else:
                self.data[place] = value

    def sum(self):
        return sum(sum(row) for row in self.data)

    def __ne__(self, other):
        return Tensor([[a != b for a, b in zip(x, y, strict=True)] for x, y in zip(self.data, other.data, strict=True)])

    __hash__ = None

    def _each(self, other, work):
        if isinstance(other, Tensor):
            return Tensor([work(a, b) for a, b in zip(self.data, other.data, strict=True)], self.dtype)
        return Tensor([work(a, other) for a in self.data], self.dtype)

    def __add__(self, other):
        return self._each(other, lambda a, b: a + b)

    __radd__ = __add__

    def __sub__(self, other):
        return self._each(other, lambda a, b: a - b)

    def __mod__(self, other):
        return self._each(other, lambda a, b: a % b)


def ones(count, device=None):
    return Tensor([1.0] * count)


def zeros(count, device=None, dtype=float32):
    return Tensor([0] * count, dtype)


def empty(count, dtype=float32):
    return Tensor([], dtype)


def arange(start, end, device=None, dtype=float32):
    return Tensor(list(range(start, end)), dtype)


def cat(tensors):
    return Tensor([value for tensor in tensors for value in tensor.data])


def stack(tensors):
    return Tensor([list(tensor.data) for tensor in tensors])


def empty_like(tensor):
    return Tensor([[0.0] * len(row) for row in tensor.data], tensor.dtype)


def fault(name):
    """Whether this rank is to suffer it."""
    return os.environ.get("FAKE_FAULT") == name and distributed.RANK == 1


__all__ = ["cuda", "distributed"]
