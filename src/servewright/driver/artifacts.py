"""The result of a run of plain ansible-runner, from the artifacts that it leaves."""

from __future__ import annotations

import json
from pathlib import Path

from servewright.driver.collect import Collector
from servewright.driver.results import RunResult


def from_folder(folder: Path) -> RunResult:
    """The result of the run in a folder of artifacts: that of one run, or with the newest run in it.

    :raises ValueError: it holds none
    """
    runs = [path.parent for path in [folder / "job_events", *folder.glob("*/job_events")] if path.is_dir()]
    if not runs:
        raise ValueError(f"{folder} holds no artifacts of ansible-runner: no job_events in it")
    run = max(runs, key=lambda path: path.stat().st_mtime)
    # ansible-runner names them <counter>-<uuid>.json, and <uuid>-partial.json those that were not finished.
    events = [path for path in run.glob("job_events/*.json") if not path.name.endswith("-partial.json")]
    collector = Collector()
    for path in sorted(events, key=lambda path: int(path.name.partition("-")[0])):
        collector.feed(json.loads(path.read_text(encoding="utf-8")))
    status = run / "rc"
    rc = int(status.read_text(encoding="ascii")) if status.is_file() else 1
    return collector.result(rc)
