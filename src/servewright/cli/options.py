"""Options that the commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

Inventory = Annotated[
    list[str] | None,
    typer.Option("-i", "--inventory", metavar="PATH", help="Inventory; without it ./inventory if that exists."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Services = Annotated[
    list[str] | None, typer.Argument(metavar="SERVICE", help="Only these services.", show_default=False)
]
Reason = Annotated[str, typer.Option(help="Why; kept in the history on the host.", show_default=False)]
LockWait = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="Wait that long for another run to end.", show_default=False)
]
Detach = Annotated[bool, typer.Option("--detach", help="Do not wait for the verdict; `follow` shows it later.")]


@dataclass
class Invocation:
    """One call of the command line: what is passed through to ansible-playbook, and the exit code once known."""

    ansible: list[str]
    code: int | None = None


@dataclass(frozen=True)
class Common:
    """Options of every command that runs a playbook. Their order is that of the help."""

    inventory: Inventory = None
    limit: Annotated[
        str | None, typer.Option("-l", "--limit", metavar="PATTERN", help="Only hosts of this Ansible pattern.")
    ] = None
    extra_vars: Annotated[
        list[str] | None,
        typer.Option("-e", "--extra-vars", metavar="VARS", help="Variables for Ansible: key=value, JSON or @file."),
    ] = None
    ask_become_pass: Annotated[bool, typer.Option("-K", "--ask-become-pass", help="Ask for the password of sudo.")] = (
        False
    )
    json: Json = False
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML, for CI.")] = None
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write one page that tells all.")] = None
    github: Annotated[
        bool,
        typer.Option("--github", help="Annotate, as in GitHub Actions, where it is the default.", show_default=False),
    ] = False
    verbose: Annotated[
        int,
        typer.Option(
            "-v", "--verbose", count=True, show_default=False, help="Show what Ansible prints, too; -vvv shows more."
        ),
    ] = 0
    keep_artifacts: Annotated[
        bool, typer.Option("--keep-artifacts", help="Keep the events of the run and say where.")
    ] = False
    ansible: list[str] = field(default_factory=list)
    """Arguments that are passed through; not an option."""


def with_common(function: Callable[..., int], only: Collection[str] | None = None) -> Callable[..., None]:
    """Make a command of a function `f(common, ...)`: it gets the common options beside its own, and returns its code.

    `only` names the common options that it has, where it does not have all.

    Typer reads options from a signature, and one that lists the common ones is made here, once, instead of being
    written out in every command.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    hints = get_type_hints(function, include_extras=True)
    own = [p.replace(annotation=hints[p.name]) for p in inspect.signature(function).parameters.values()][1:]
    types = get_type_hints(Common, include_extras=True)
    options = [f for f in fields(Common) if f.name != "ansible" and (only is None or f.name in only)]
    shared = [inspect.Parameter(f.name, kind, default=f.default, annotation=types[f.name]) for f in options]

    @functools.wraps(function)
    def command(context: typer.Context, **values: Any) -> None:
        invocation: Invocation = context.obj
        common = Common(**{f.name: values.pop(f.name) for f in options}, ansible=invocation.ansible)
        invocation.code = function(common, **values)

    signature = inspect.Signature([inspect.Parameter("context", kind, annotation=typer.Context), *own, *shared])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    return command
