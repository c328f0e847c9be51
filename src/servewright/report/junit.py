"""A run as JUnit XML, valid by the schemas of Jenkins' xUnit plugin (junit-10) and of Ant's JUnitReport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from xml.etree import ElementTree

from servewright.driver.results import RunResult
from servewright.report.cases import Case, Suite, suites
from servewright.report.style import writable


def junit(result: RunResult, when: datetime) -> str:
    """The document. A suite is a service of a host, a host, or the run; a case a check, a gate, a finding or a verdict.

    A run without any case, such as one over no service, gives no suite.
    """
    root = ElementTree.Element("testsuites")
    for number, suite in enumerate(suites(result)):
        _suite(root, number, suite, result.command, when)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, number: int, suite: Suite, command: str, when: datetime) -> None:
    counted = Counter(case.outcome for case in suite.cases)
    attributes = {
        "name": suite.name,
        "package": f"servewright.{command}",
        "id": str(number),
        "hostname": suite.host or "localhost",
        "timestamp": when.strftime("%Y-%m-%dT%H:%M:%S"),
        "tests": str(len(suite.cases)),
        "failures": str(counted["failed"]),
        "errors": str(counted["error"]),
        "skipped": str(counted["skipped"]),
        "time": _seconds(suite.cases),
    }
    element = ElementTree.SubElement(root, "testsuite", {name: writable(text) for name, text in attributes.items()})
    ElementTree.SubElement(element, "properties")
    for case in suite.cases:
        _case(element, case, suite)
    # A warning has no place of its own in JUnit, and failing for it would be wrong.
    warnings = [f"warning: {case.name}: {case.message}" for case in suite.cases if case.outcome == "warning"]
    ElementTree.SubElement(element, "system-out").text = writable("\n".join([*warnings, *suite.log]))
    ElementTree.SubElement(element, "system-err").text = ""


def _case(parent: ElementTree.Element, case: Case, suite: Suite) -> None:
    place = f"{case.file}:{case.line}: " if case.file else ""
    classname = ".".join(part for part in ("servewright", suite.host, suite.service, case.kind) if part)
    attributes = {"name": case.name, "classname": classname, "time": _seconds([case])}
    element = ElementTree.SubElement(parent, "testcase", {name: writable(text) for name, text in attributes.items()})
    if case.outcome in ("failed", "error"):
        tag = "failure" if case.outcome == "failed" else "error"
        found = ElementTree.SubElement(element, tag, {"message": writable(place + case.message), "type": case.kind})
        found.text = writable("\n".join(part for part in (place + case.message, case.detail) if part))
    elif case.outcome == "skipped":
        ElementTree.SubElement(element, "skipped")


def _seconds(cases: Sequence[Case]) -> str:
    # The verdict's time is that of everything else together.
    return f"{max((case.seconds for case in cases), default=0.0):.3f}"
