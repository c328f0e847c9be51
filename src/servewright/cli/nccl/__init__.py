"""servewright nccl: commands about NCCL settings that need no host."""

from __future__ import annotations

import typer

from servewright.cli.nccl import explain, import_, lint, profiles

app = typer.Typer(help="Check, explain and take over NCCL settings.", no_args_is_help=True, rich_markup_mode=None)
app.command()(lint.lint)
app.command()(explain.explain)
app.command("import")(import_.import_)
app.command()(profiles.profiles)
