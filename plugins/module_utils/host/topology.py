"""How GPUs are linked, and what on the way breaks peer-to-peer traffic: reading the text of other tools."""

from __future__ import annotations

import contextlib
import os
import re

from .surroundings.pci import DEVICES as _DEVICES

_GROUPS = "/sys/kernel/iommu_groups"
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def matrix(text):
    """What `nvidia-smi topo` prints, as a mapping of (row, column) to a word (NV18, PIX, SYS, OK, CNS, ...)."""
    lines = [_ESCAPE.sub("", line) for line in text.splitlines()]
    head = next((re.findall(r"GPU\d+", line) for line in lines if re.match(r"\s+GPU0\b", line)), [])
    columns = [int(word[3:]) for word in head]
    found = {}
    for line in lines:
        words = line.split()
        if words and re.fullmatch(r"GPU\d+", words[0]) and words[1:2] != head[1:2]:
            for column, word in zip(columns, words[1:]):
                found[int(words[0][3:]), column] = word
    return found


def pairs(table, indices):
    """The words of a matrix for each pair of some GPUs."""
    return {(a, b): table[a, b] for a in indices for b in indices if a < b and (a, b) in table}


def upstream(places):
    """PCI addresses of the bridges above some devices; empty where the kernel lists no device."""
    found = set()
    for place in places:
        path = os.path.join(_DEVICES, place)
        if os.path.exists(path):
            found.update(
                re.findall(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", os.path.dirname(os.path.realpath(path)))
            )
    return found


def iommu(places):
    """How the IOMMU treats devices: "off" (no groups), "passthrough", or "translating".

    Where one is not listed, or none is given, all devices of the host count.
    """
    groups = [os.path.join(_DEVICES, place, "iommu_group") for place in places]
    if not groups or not all(os.path.exists(os.path.dirname(group)) for group in groups):
        groups = [os.path.join(_GROUPS, name) for name in os.listdir(_GROUPS)] if os.path.isdir(_GROUPS) else []
    kinds = set()
    for group in groups:
        with contextlib.suppress(OSError), open(os.path.join(group, "type")) as stream:
            kinds.add(stream.read().strip())
    if not kinds:
        return "off"
    return "passthrough" if kinds == {"identity"} else "translating"
