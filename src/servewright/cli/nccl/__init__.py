"""servewright nccl: commands about NCCL settings; all but proof need no host."""

from __future__ import annotations

import typer

from servewright.cli.nccl import explain, import_, lint, profiles, proof
from servewright.cli.options import with_common

app = typer.Typer(
    help="Check, explain, take over and prove NCCL settings.", no_args_is_help=True, rich_markup_mode=None
)
app.command()(lint.lint)
app.command()(explain.explain)
app.command("import")(import_.import_)
app.command()(profiles.profiles)
app.command()(with_common(proof.proof))
