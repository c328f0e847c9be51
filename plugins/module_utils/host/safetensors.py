"""Weight files in the safetensors format, and the index that lists them, read without loading anything."""

from __future__ import annotations

import json
import os
import struct

_LONGEST_HEADER = 100 << 20  # the format's own limit (safetensors/src/tensor.rs, MAX_HEADER_SIZE)
_LFS = b"version https://git-lfs"


def trouble(path):
    """Why a weight file cannot be read, as text for a person; "" when its size is what its header says."""
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as stream:
            start = stream.read(8)
            if start == _LFS[:8]:
                return "is a Git LFS pointer, not the weights themselves"
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= _LONGEST_HEADER:
                return "does not begin with a safetensors header"
            text = stream.read(length)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    try:
        header = json.loads(text)
        ends = [item["data_offsets"][1] for name, item in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return f"is cut short or damaged: it has {size} bytes, and its header cannot be read"
    want = 8 + length + max(ends, default=0)
    if size != want:
        return f"is cut short or damaged: it has {size} bytes, its header says {want}"
    return ""


def shards(folder):
    """Names of the weight files of a model folder that its index lists, or else of those that are there."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index, encoding="utf-8") as stream:
            return sorted(set(json.load(stream)["weight_map"].values()))
    return sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))


def total_size(folder):
    """Bytes that the index says all weights have, or 0."""
    try:
        with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as stream:
            return int(json.load(stream)["metadata"]["total_size"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
