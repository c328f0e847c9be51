"""The way between the claimed GPUs: as declared, and without what makes peer-to-peer traffic hang or go wrong."""

from __future__ import annotations

from .. import gpus, topology
from ..surroundings import pci
from .check import fatal, passed, warning

_CMDLINE = "/proc/cmdline"
_OFF = "turn the IOMMU off or to passthrough (iommu=pt) and ACS off in the BIOS; until then NCCL_P2P_DISABLE=1"


def links(subject):
    """GPUs are linked as servewright_host declares."""
    claimed = sorted(subject.claimed)
    if len(claimed) < 2:
        return []
    words = topology.pairs(topology.matrix(subject.gpu_links), claimed)
    if not words:
        return []
    kinds = sorted(set(words.values()))
    declared = subject.release.get("host", {}).get("interconnect")
    slow = [pair for pair, word in words.items() if not word.startswith("NV")]
    if declared == "nvlink" and slow:
        message = "GPUs {} and {} are linked by {}, servewright_host declares nvlink".format(*slow[0], words[slow[0]])
        return [fatal(message, "look at the NVLink bridges, or correct servewright_host", links=kinds)]
    if declared == "pcie" and not slow:
        return [
            fatal(
                "the GPUs are linked by NVLink, servewright_host declares pcie", "correct servewright_host", links=kinds
            )
        ]
    peers = topology.pairs(topology.matrix(gpus.topology("-p2p", "r")), claimed)
    return [passed(f"{len(claimed)} GPUs linked by {', '.join(kinds)}", links=kinds, p2p=sorted(set(peers.values())))]


def peer_to_peer(subject):
    """Nothing between PCIe GPUs redirects what they send one another. The driver says OK to P2P all the same."""
    claimed = sorted(subject.claimed)
    words = topology.pairs(topology.matrix(subject.gpu_links), claimed) if len(claimed) > 1 else {}
    if not words or all(word.startswith("NV") for word in words.values()) or _p2p_off(subject.release["environment"]):
        return []
    places = [subject.gpus[index]["place"] for index in claimed]
    above = topology.upstream(places)
    iommu, cmdline = topology.iommu(places), _cmdline()
    bridges = {place: acs for place, acs in pci.bridges().items() if place in above or not above}
    on = sorted(place for place, (_able, control) in bridges.items() if control & pci.REDIRECT)
    cleared = sorted(place for place, (able, _control) in bridges.items() if able & pci.REDIRECT and place not in on)
    evidence = {"iommu": iommu, "acs_on": on, "cmdline": cmdline}
    both = f"the IOMMU translates and {len(on)} PCIe bridges redirect (ACS, {', '.join(on[:3])})"
    if iommu == "translating" and on:
        return [fatal(f"{both}: the first all-reduce over P2P can hang for ever", _OFF, **evidence)]
    found = []
    if iommu == "translating":
        found.append(
            warning("the IOMMU translates addresses; P2P between PCIe GPUs can hang or go wrong", _OFF, **evidence)
        )
    if on:
        message = f"{len(on)} PCIe bridges redirect P2P traffic (ACS, {', '.join(on[:3])}): it is slow or hangs"
        found.append(warning(message, _OFF, **evidence))
    if iommu != "off" and cleared and not on and not any("acs" in word for word in cmdline):
        found.append(
            warning(
                f"ACS is off on {len(cleared)} bridges ({', '.join(cleared[:3])}), but nothing on the kernel's command "
                "line keeps it off: with an IOMMU the next boot turns it on again",
                "put pci=disable_acs_redir=... on the kernel's command line, or clear it by a unit before this one",
                **evidence,
            )
        )
    return found or [passed(f"IOMMU {iommu}, no bridge redirects" if bridges else f"IOMMU {iommu}", **evidence)]


def _p2p_off(environment):
    return environment.get("NCCL_P2P_DISABLE") == "1" or environment.get("NCCL_P2P_LEVEL", "").upper() in ("LOC", "NVL")


def _cmdline():
    """The words of the kernel's command line that concern P2P."""
    with open(_CMDLINE) as stream:
        return [word for word in stream.read().split() if "iommu" in word or "acs" in word]
