"""Weight files in the safetensors format, and the index that lists them, read without loading anything."""

from __future__ import annotations

import json
import os
import re
import struct

_LONGEST_HEADER = 100 << 20  # the format's own limit (safetensors/src/tensor.rs, MAX_HEADER_SIZE)
_LFS = b"version https://git-lfs"
# File names and indexes of weights in the formats that a folder may hold them in, several at a time. Engines read one:
# SGLang 0.5.23 the first that is there, vLLM 0.32.0 Mistral's "consolidated" before the others.
_KINDS = (
    (r"(?!consolidated).*\.safetensors", "model.safetensors.index.json"),
    (r"consolidated.*\.safetensors", "consolidated.safetensors.index.json"),
    (r"pytorch_model.*\.bin", "pytorch_model.bin.index.json"),
)
_NUMBERED = re.compile(r"(.*-)(\d+)(-of-)(\d+)(\..*)")


def is_pointer(path):
    """True for what Git leaves in place of a large file that it did not fetch. Raises OSError."""
    with open(path, "rb") as stream:
        return stream.read(len(_LFS)) == _LFS


def trouble(path):
    """Why a weight file cannot be read, as text for a person; "" when its size is what its header says.

    Of a file in another format only what can be said of any.
    """
    try:
        size = os.stat(path).st_size
        with open(path, "rb") as stream:
            start = stream.read(8)
            if start == _LFS[:8]:
                return "is a Git LFS pointer, not the weights themselves"
            if not path.endswith(".safetensors"):
                return ""
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


def index(folder):
    """Path of the index of the weights in a model folder, or ""."""
    return _found(folder)[1]


def shards(folder):
    """Names of the weight files that a model folder should have.

    They are those that its index lists; without one those that are there, and those that numbers in their names
    ("-00001-of-00003") tell of. Raises OSError, ValueError and others when the index cannot be read.
    """
    files, path = _found(folder)
    if path:
        with open(path, encoding="utf-8") as stream:
            return sorted(set(json.load(stream)["weight_map"].values()))
    return sorted({*files, *_counted(files)})


def total_size(folder):
    """Bytes that the index says all weights have, or 0."""
    try:
        with open(index(folder), encoding="utf-8") as stream:
            return int(json.load(stream)["metadata"]["total_size"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _found(folder):
    """Weight files of the first kind that is there, and the path of its index or ""; the index alone when none is."""
    names, alone = os.listdir(folder), ""
    for kind, name in _KINDS:
        files = [each for each in names if re.fullmatch(kind, each)]
        path = os.path.join(folder, name) if name in names else ""
        if files:
            return files, path
        alone = alone or path
    return [], alone


def _counted(files):
    """Names of all files of each numbered series that some are of; one may begin with 0 instead of 1."""
    series = {}
    for match in filter(None, map(_NUMBERED.fullmatch, files)):
        before, number, of, count, after = match.groups()
        series.setdefault((before, len(number), of, count, after), set()).add(int(number))
    return [
        f"{before}{number:0{width}}{of}{count}{after}"
        for (before, width, of, count, after), numbers in series.items()
        for number in range(min(numbers | {1}), int(count) + min(numbers | {1}))
    ]
