"""Records of speed: from files, and from the answers of hosts."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servewright.driver.results import RunResult
from servewright.report.document import from_document

Record = dict[str, Any]
"""What `servewright bench` measured (the host library's performance/bench.py), with `host`."""

_NAME = re.compile(r"(?:(?P<host>[^:@]+):)?(?P<service>[a-z][a-z0-9-]*)(?:@(?P<release>[0-9]+))?")


class RecordError(ValueError):
    """There is no such record, or more than one."""


def export(records: list[Record], target: Path) -> None:
    """Write records to a file that `compare` reads."""
    target.write_text(json.dumps({"records": records}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def benched(result: RunResult) -> list[Record]:
    """The records of a run of `bench`."""
    return [
        {**service["record"], "host": host}
        for host, found in result.hosts.items()
        for service in found.services
        if service.get("record")
    ]


def read(path: Path) -> Record:
    """The record in a file: what `bench --export` wrote, or what `bench --json` printed. Raises RecordError."""
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        found = content["records"] if "records" in content else benched(from_document(text))
        names = [name(record) for record in found]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RecordError(f"{path}: not a record that `servewright bench --export` wrote") from None
    if len(found) != 1:
        raise RecordError(f"{path}: holds {len(found)} records ({', '.join(names)}): export one service a file")
    record: Record = found[0]
    return record


def chosen(text: str, result: RunResult) -> Record:
    """The record that `[HOST:]SERVICE[@RELEASE]` names, of what hosts know: the latest. Raises RecordError."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise RecordError(f"{text!r} is neither a file nor [HOST:]SERVICE[@RELEASE]")
    release = int(match["release"]) if match["release"] else None
    found: dict[str, Record] = {}
    for host, answer in result.hosts.items():
        for service in answer.services:
            if service.get("service") == match["service"] and match["host"] in (None, host):
                record = _latest(service, release)
                if record is not None:
                    found[host] = {**record, "host": host}
    if not found:
        raise RecordError(f"{text}: nothing was measured: run `servewright bench {match['service']}` first")
    if len(found) > 1:
        raise RecordError(f"{text}: measured on {', '.join(found)}: say which, as in {next(iter(found))}:{text}")
    return next(iter(found.values()))


def _latest(service: Mapping[str, Any], release: int | None) -> Record | None:
    """The latest bench, or where a release was not benched what the gate measured of its starts."""
    for bench in reversed(service.get("benches") or []):
        if release in (None, bench["release"]):
            return dict(bench)
    for baseline in reversed(service.get("baselines") or []):
        if release in (None, baseline["release"]):
            return _of_baseline(baseline)
    return None


def _of_baseline(baseline: Mapping[str, Any]) -> Record:
    starts = baseline["starts"]
    names = {name: None for start in starts for name in start["figures"]}
    figures = {}
    for figure in names:
        values = [start["figures"][figure] for start in starts if figure in start["figures"]]
        figures[figure] = {"median": statistics.median(values), "low": min(values), "high": max(values)}
    return {
        "service": baseline["service"],
        "release": baseline["release"],
        "model": baseline["key"]["model"],
        "gpus": baseline["key"]["gpus"],
        "time": starts[-1]["time"],
        "figures": figures,
        "curve": [],
        "workload": {"tokens": baseline["key"]["workload"]["tokens"]},
        "starts": len(starts),
    }


def name(record: Record) -> str:
    """How a record is called in tables and plots."""
    engine = f" ({record['engine']} {record['version']})" if record.get("engine") else ""
    return f"{record.get('host', '?')}: {record['service']}, release {record['release']}{engine}"
