"""servewright nccl: commands about NCCL settings. Only bench, proof and tune ask hosts."""

from __future__ import annotations

import typer

from servewright.cli.nccl import bench, explain, import_, lint, profiles, proof, tune
from servewright.cli.options import with_common

app = typer.Typer(
    help="Check, explain, prove, measure and tune NCCL settings.", no_args_is_help=True, rich_markup_mode=None
)
app.command()(lint.lint)
app.command()(explain.explain)
app.command("import")(import_.import_)
app.command()(profiles.profiles)
app.command()(with_common(proof.proof))
app.command()(with_common(bench.bench))
app.command()(with_common(tune.tune))
