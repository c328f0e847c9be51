"""servewright bench"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from servewright.cli import playbook
from servewright.cli.options import Common

Names = Annotated[list[str], typer.Argument(metavar="SERVICE", help="The services to measure.")]
Levels = Annotated[
    str | None,
    typer.Option("-c", "--concurrency", metavar="N,N,...", help="Streams at once; without it 1,2,4,8,16,32."),
]
Duration = Annotated[float, typer.Option(min=1, help="Time to measure, about; later levels are left out.")]
Export = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the records, for `servewright compare`.")]


def bench(
    common: Common, services: Names, concurrency: Levels = None, seconds: Duration = 120, export: Export = None
) -> int:
    """Measure the speed of running services on their hosts. This loads them."""
    from servewright.driver.results import RunResult
    from servewright.performance import records

    try:
        levels = [int(part) for part in concurrency.split(",")] if concurrency else None
        if levels and min(levels) < 1:
            raise ValueError
    except ValueError:
        wrong = f"--concurrency {concurrency}: give numbers from 1 on, as in 1,4,16"
        return playbook.report(RunResult("bench", error=wrong), common)
    result = playbook.result("bench", common, services, servewright_concurrency=levels, servewright_seconds=seconds)
    if export is not None:
        found = records.benched(result)
        try:
            if found:
                records.export(found, export)
        except OSError as error:
            result.error = f"cannot write {export}: {error.strerror}"
    return playbook.report(result, common)
