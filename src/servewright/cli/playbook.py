"""Runs the playbook of a command, shows its progress and reports what came of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from servewright.artefact import ArtefactError, check
from servewright.cli.options import Common
from servewright.driver.results import RunResult
from servewright.report.outputs import check_writable, write


def run(
    command: str,
    common: Common,
    services: list[str] | None = None,
    detailed: bool = False,
    **variables: Any,
) -> int:
    """Run `servewright.llm.<command>` and give the exit code.

    `services` selects by name (none: all), `detailed` gives planned changes a code of their own, `variables` are extra
    variables of the playbook; those that are None are left out.
    """
    return report(result(command, common, services, **variables), common, detailed)


def result(
    command: str,
    common: Common,
    services: list[str] | None = None,
    files: Sequence[Path | None] = (),
    **variables: Any,
) -> RunResult:
    """Run `servewright.llm.<command>` and give what came of it.

    `files` are those that will be written of it, beside the common ones.
    """
    try:
        check()
        check_writable(common.junit, common.html, *files)
        found = _run(command, common, {"servewright_only": services or [], **variables})
        if (found.error and not found.hosts) or found.nothing_declared:
            found.problems = _unread(common)
            found.error = "" if found.problems else found.error
        return found
    except (ArtefactError, OSError, ValueError) as error:
        return RunResult(command, error=str(error))


def report(result: RunResult, common: Common, detailed: bool = False, quiet: bool = False) -> int:
    """Print the report of a result (not when `quiet`), write the files that were asked for, and give the exit code."""
    from servewright.report import github
    from servewright.report.exit_code import exit_code

    code = exit_code(result, detailed)
    on_github = common.github or github.active()
    if quiet:
        pass
    elif common.json:
        from servewright.report.document import document

        print(document(result, code))
    else:
        from servewright.report.layout import for_output
        from servewright.report.text import text

        shown = for_output(lambda width: text(result, code, width, bool(common.verbose)))
        sys.stdout.write(github.quiet(shown) if on_github else shown)
    sys.stdout.flush()
    try:
        write(result, code, common.junit, common.html)
        if on_github:
            _to_github(result, code)
    except OSError as error:
        # The run is over and has its code, which says more than that of a missing report would.
        if str(error) != result.error:
            print(f"error  {error}", file=sys.stderr)
    return code


def _to_github(result: RunResult, code: int) -> None:
    from servewright.report import github
    from servewright.report.markdown import markdown

    for line in github.commands(result):
        print(line, file=sys.stderr)
    github.add_summary(markdown(result, code))


def inventories(common: Common) -> list[str]:
    """The inventories of a run, as absolute paths; none where Ansible's own configuration is to decide.

    :raises FileNotFoundError: a path that is not there
    """
    chosen = common.inventory or (["inventory"] if Path("inventory").exists() else [])
    for path in chosen:
        # An empty path would be the working folder, most likely of a variable that is not set.
        if "," not in path and not (path and Path(path).exists()):
            raise FileNotFoundError(f"no inventory at {path or repr(path)}: give its path with -i")
    return [path if "," in path else str(Path(path).absolute()) for path in chosen]


def _unread(common: Common) -> list[dict[str, Any]]:
    """What of the inventory cannot be read: Ansible often says neither file nor line, or finds no service at all."""
    from servewright.spec import positions, validate
    from servewright.spec.problems import InvalidError, Problem

    problems: list[Problem] = []
    for path in inventories(common):
        with suppress(positions.NeedsAnsible, OSError):  # or an inventory of another form
            problems += positions.definitions(Path(path), validate.VARIABLES)[1]
    return [problem.as_dict() for problem in InvalidError(problems).problems]


def _run(command: str, common: Common, variables: dict[str, Any]) -> RunResult:
    from servewright.cli.passwords import answers
    from servewright.driver.collect import Collector
    from servewright.driver.playbook import Job, Playbook
    from servewright.report.progress import Display

    arguments = [word for path in inventories(common) for word in ("-i", path)]
    arguments += ["--limit", common.limit] if common.limit is not None else []
    arguments += [word for item in common.extra_vars or [] for word in ("-e", item)]
    arguments += ["-e", json.dumps({name: value for name, value in variables.items() if value is not None})]
    arguments += ["--ask-become-pass"] if common.ask_become_pass else []
    arguments += ["-" + "v" * common.verbose] if common.verbose else []
    arguments += [*common.ansible, f"servewright.llm.{command}"]

    collector = Collector(command, common.limit)
    job = Job(arguments, answers(arguments), common.keep_artifacts)
    with Display(bool(common.verbose)) as display, Playbook(job) as playbook:
        for items in playbook:
            display.show(items)
            for item in items:
                if isinstance(item, dict):
                    collector.feed(item)
    result = collector.result(playbook.rc, playbook.failure, playbook.interrupted)
    if playbook.interrupted:
        result.unfinished = [
            {"host": row.host, "service": row.service, "step": row.phase} for row in display.board.unfinished
        ]
    return result
