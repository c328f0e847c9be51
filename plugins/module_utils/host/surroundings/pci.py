"""Access Control Services of PCI bridges: set, they send GPU peer-to-peer traffic up to the root complex."""

from __future__ import annotations

import glob
import os
import struct

# PCI Express Base Specification: extended capabilities begin at 0x100; ACS is number 0x000D, its control at +6.
_FIRST, _ACS, _CONTROL = 0x100, 0x000D, 6
_BRIDGE = "0x0604"  # class code of a PCI-to-PCI bridge


def acs():
    """Control register of every bridge that has ACS, by address."""
    found = {}
    for folder in sorted(glob.glob("/sys/bus/pci/devices/*")):
        try:
            with open(os.path.join(folder, "class")) as stream:
                if not stream.read().startswith(_BRIDGE):
                    continue
            with open(os.path.join(folder, "config"), "rb") as stream:
                value = control(stream.read())
        except OSError:
            continue
        if value is not None:
            found[os.path.basename(folder)] = value
    return found


def control(config):
    """The ACS control register in the configuration space of a device, or None when it has none."""
    at, seen = _FIRST, set()
    while at >= _FIRST and at + 8 <= len(config) and at not in seen:
        seen.add(at)
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == _ACS:
            return struct.unpack_from("<H", config, at + _CONTROL)[0]
        at = header >> 20
    return None
