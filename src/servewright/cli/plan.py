"""servewright plan"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from servewright.cli import playbook
from servewright.cli.options import Common, Services

DetailedExitCode = Annotated[bool, typer.Option("--detailed-exitcode", help="Exit with 2 when there are changes.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Save the plan, for deploy --plan.", show_default=False)
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a comment on a pull request.")]


def plan(
    common: Common,
    services: Services = None,
    out: Out = None,
    markdown: Markdown = False,
    detailed_exitcode: DetailedExitCode = False,
) -> int:
    """Show what a deploy would change, and what it would restart."""
    from servewright.report.document import document
    from servewright.report.exit_code import exit_code

    result = playbook.result("plan", common, services, files=[out])
    if out is not None and not result.error:
        try:
            out.write_text(document(result, exit_code(result, detailed_exitcode)) + "\n", encoding="utf-8")
        except OSError as error:
            result.error = f"cannot write {out}: {error.strerror}"
    if not markdown:
        return playbook.report(result, common, detailed_exitcode)
    from servewright.report.markdown import markdown as as_markdown

    sys.stdout.write(as_markdown(result, exit_code(result, detailed_exitcode)))
    return playbook.report(result, common, detailed_exitcode, quiet=True)
