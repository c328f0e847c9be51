"""Entry point of the command line."""

from __future__ import annotations

import importlib
import os
import sys

import typer

from servewright.cli.options import Invocation, with_common

COMMANDS = (
    "validate",
    "render",
    "preflight",
    "plan",
    "deploy",
    "verify",
    "status",
    "history",
    "rollback",
    "logs",
    "follow",
    "drift",
    "watch",
    "bench",
    "compare",
    "doctor",
    "report",
    "nccl",
    "version",
)
"""In the order of the help."""


def build(arguments: list[str]) -> typer.Typer:
    """The command line: with the command that the arguments begin with, else with all, for the help and for errors.

    To register all takes longer than most commands take.
    """
    # Rich help, tracebacks and completion would each make every start slower.
    app = typer.Typer(
        help="Deploy LLM engines as systemd services, verify them and roll back by itself.",
        epilog="Options of ansible-playbook can follow after --. Exit codes: 0 done, 1 error, 2 changes found, "
        "3 refused, 4 rolled back, 5 rollback failed, 6 unreachable, 7 locked.",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # A callback keeps the name of a command that is alone.
    app.callback()(lambda: None)
    for name in arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS:
        _register(app, name)
    return app


def _register(app: typer.Typer, name: str) -> None:
    module = importlib.import_module(f"servewright.cli.{'preflight' if name == 'doctor' else name}")
    if name == "nccl":
        app.add_typer(module.app, name=name)
    elif name == "version":
        app.command()(module.version)
    elif name == "report":
        app.command()(with_common(module.report, ("json", "verbose", "junit", "html", "github")))
    elif name == "doctor":
        app.command(name, help="The same as preflight.")(with_common(module.preflight))
    else:
        app.command()(with_common(getattr(module, name)))


def main() -> None:
    """Run the command line of this process and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        # Log lines of an engine hold any character, and the terminal may not have it.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read the output has seen enough, as with `| head`; a second try at exit would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and give its exit code."""
    own, ansible = _split(arguments)
    invocation = Invocation(ansible)
    try:
        build(own)(own, prog_name="servewright", obj=invocation)
    except SystemExit as exit_:
        if invocation.code is None:
            # An exit of the parser: help, or a usage error, whose usual code means something else here.
            return 1 if exit_.code else 0
    return invocation.code or 0


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is for servewright, and what follows after -- for ansible-playbook."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]
