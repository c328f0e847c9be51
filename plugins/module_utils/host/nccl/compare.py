"""What differs between two proofs of a service: a list of {"field", "old", "new"}."""

from __future__ import annotations

from collections import Counter


def between(old, new):
    """Differences in NCCL itself and in what it did; what calls ran with is compared for sizes that both have."""
    before, after = _facts(old), _facts(new)
    found = []
    for field in [*after, *(field for field in before if field not in after)]:
        if before.get(field) != after.get(field):
            found.append({"field": field, "old": before.get(field), "new": after.get(field)})
    was, now = _choices(old), _choices(new)
    for key in sorted(was.keys() & now.keys()):
        if was[key] != now[key]:
            found.append({"field": "{} of {} bytes".format(*key), "old": was[key], "new": now[key]})
    return found


def _facts(proof):
    ranks = proof["ranks"]
    return {
        "version": _one(rank["version"] for rank in ranks),
        "library": _one(library["sha256"] for library in proof["libraries"]),
        "ranks": str(len(ranks)),
        "channels": _one(rank["channels"] for rank in ranks),
        "transports": transports(proof),
        **{f"variable {name}": _one(rank["variables"].get(name) for rank in ranks) for name in _names(ranks)},
    }


def _names(ranks):
    return sorted({name for rank in ranks for name in rank["variables"]})


def transports(proof):
    """How GPUs are joined, as text: each transport with the channels that use it."""
    found = Counter()
    for rank in proof["ranks"]:
        for connection in rank["connections"]:
            found[connection["via"]] += _count(connection["channels"])
    return ", ".join(f"{via} x{count}" for via, count in sorted(found.items())) or None


def _count(spans):
    """Numbers in a text such as 0-3,7."""
    pairs = [part.partition("-") for part in spans.split(",")]
    return sum(int(high or low) - int(low) + 1 for low, _dash, high in pairs)


def _one(values):
    """A value that all ranks share, or all there are."""
    return ", ".join(sorted({str(value) for value in values})) or None


def _choices(proof):
    found = {}
    for choice in proof["choices"]:
        ran = "/".join(part for part in (choice["algorithm"], choice["protocol"]) if part)
        found.setdefault((choice["function"], choice["bytes"]), set()).add(ran)
    return {key: ", ".join(sorted(ran)) for key, ran in found.items()}
