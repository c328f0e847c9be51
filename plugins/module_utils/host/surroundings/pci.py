"""Access Control Services of PCI bridges: set, they send GPU peer-to-peer traffic up to the root complex."""

from __future__ import annotations

import glob
import os
import struct

DEVICES = "/sys/bus/pci/devices"
# PCI Express Base Specification: extended capabilities begin at 0x100; ACS is number 0x000D, its control at +6.
_FIRST, _ACS, _CAPABILITY, _CONTROL = 0x100, 0x000D, 4, 6
_BRIDGE = "0x0604"  # class code of a PCI-to-PCI bridge
REDIRECT = 0x04 | 0x08  # P2P Request Redirect and P2P Completion Redirect, in both registers


def acs():
    """Control register of every bridge that has ACS, by address."""
    return {address: control for address, (_capability, control) in bridges().items()}


def bridges():
    """Capability and control register of every bridge that has ACS, by address."""
    found = {}
    for folder in sorted(glob.glob(DEVICES + "/*")):
        try:
            with open(os.path.join(folder, "class")) as stream:
                if not stream.read().startswith(_BRIDGE):
                    continue
            with open(os.path.join(folder, "config"), "rb") as stream:
                value = registers(stream.read())
        except OSError:
            continue
        if value is not None:
            found[os.path.basename(folder)] = value
    return found


def registers(config):
    """The ACS capability and control register in the configuration space of a device, or None when it has none."""
    at, seen = _FIRST, set()
    while at >= _FIRST and at + 8 <= len(config) and at not in seen:
        seen.add(at)
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == _ACS:
            return tuple(struct.unpack_from("<H", config, at + place)[0] for place in (_CAPABILITY, _CONTROL))
        at = header >> 20
    return None
