"""servewright compare"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from servewright.cli import playbook
from servewright.cli.options import Common

First = Annotated[str, typer.Argument(metavar="A", help="[HOST:]SERVICE[@RELEASE], or a file of `bench --export`.")]
Second = Annotated[str, typer.Argument(metavar="B", help="What to compare with it.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the curves: a .svg, .png or .pdf file.")]


def compare(common: Common, first: First, second: Second, plot: Plot = None) -> int:
    """Compare the speed of two services, releases or records."""
    from servewright.driver.results import RunResult
    from servewright.performance import records

    result = RunResult("compare")
    if not (Path(first).is_file() and Path(second).is_file()):
        result = playbook.result("compare", common)
        if result.error or result.interrupted or any(host.unreachable for host in result.hosts.values()):
            return playbook.report(result, common)
    try:
        pair = [
            records.read(Path(text)) if Path(text).is_file() else records.chosen(text, result)
            for text in (first, second)
        ]
        if plot is not None:
            from servewright.performance.plot import draw

            draw(pair, plot)
    except (OSError, ValueError) as error:
        return playbook.report(RunResult("compare", error=str(error)), common)
    _show(pair, common)
    return 0


def _show(pair: list[dict[str, Any]], common: Common) -> None:
    if common.json:
        print(json.dumps({"command": "compare", "exit_code": 0, "first": pair[0], "second": pair[1]}, indent=2))
        return
    from servewright.report.bench import comparison
    from servewright.report.layout import for_output

    sys.stdout.write(for_output(lambda width: comparison(pair[0], pair[1], width)))
