"""JUnit XML, as CI systems read it."""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree

from servewright.driver.results import HostResult, RunResult
from servewright.report.junit import junit
from tests.unit.report.samples import PROBLEM, everything

WHEN = datetime(2026, 11, 30, 1, 2, 3, tzinfo=UTC)

# What both schemas in use allow (Jenkins' junit-10.xsd and the one of Ant's JUnitReport): for each element its
# attributes, all of which Ant requires where it knows them, and its children in their order.
ALLOWED = {
    "testsuites": (set(), ["testsuite*"]),
    "testsuite": (
        {"name", "package", "id", "hostname", "timestamp", "tests", "failures", "errors", "skipped", "time"},
        ["properties", "testcase*", "system-out", "system-err"],
    ),
    "testcase": ({"name", "classname", "time"}, ["failure?", "error?", "skipped?"]),
    "failure": ({"message", "type"}, []),
    "error": ({"message", "type"}, []),
    "skipped": (set(), []),
    "properties": (set(), []),
    "system-out": (set(), []),
    "system-err": (set(), []),
}


def parsed(result: RunResult) -> ElementTree.Element:
    return ElementTree.fromstring(junit(result, WHEN).encode())


def follows(element: ElementTree.Element) -> bool:
    attributes, children = ALLOWED[element.tag]
    rest = [child.tag for child in element]
    for child in children:
        name, many = child.rstrip("*?"), child[-1]
        count = 0
        while rest and rest[0] == name:
            rest.pop(0)
            count += 1
        if (count > 1 and many != "*") or (count == 0 and many not in "*?"):
            return False
    return not rest and set(element.attrib) == attributes and all(map(follows, element))


def test_it_is_what_the_schemas_allow() -> None:
    assert follows(parsed(everything()))
    assert follows(parsed(RunResult("deploy", error="no inventory")))
    assert follows(parsed(RunResult("status")))


def test_the_counts_are_those_of_the_cases() -> None:
    for suite in parsed(everything()):
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase")) > 0
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.attrib[name]) == len(suite.findall(f"testcase/{tag}"))


def test_everything_that_went_wrong_is_there() -> None:
    root = parsed(everything())
    bad = [case.attrib["classname"] for case in root.iter("testcase") if case.find("failure") is not None]
    assert bad == [
        "servewright.declaration",
        "servewright.gpu1.kimi.verdict",
        "servewright.gpu1.kimi.gate",
        "servewright.gpu4.kimi.verdict",
        "servewright.gpu4.kimi.preflight",
    ]
    (unreachable,) = [case for case in root.iter("testcase") if case.find("error") is not None]
    assert (unreachable.attrib["name"], unreachable.attrib["classname"]) == ("unreachable", "servewright.gpu2.host")


def test_a_problem_names_its_place() -> None:
    failure = parsed(RunResult("validate", problems=[PROBLEM])).find(".//failure")
    assert failure is not None
    assert failure.attrib["message"].startswith("/inventory/llm.yml:31: unknown key")
    assert "did you mean 'gpus'?" in str(failure.text)


def test_a_warning_fails_nothing_and_is_told() -> None:
    suite = parsed(everything()).find("testsuite[@name='gpu1 kimi']")
    assert suite is not None
    assert suite.find("testcase[@name='drop_ins']/failure") is None
    assert "warning: drop_ins: x.conf" in str(suite.findtext("system-out"))


def test_planned_changes_are_no_failure_and_findings_are() -> None:
    def failures(**service: object) -> int:
        return len(list(parsed(RunResult("x", {"gpu1": HostResult(services=[dict(service)])})).iter("failure")))

    assert failures(service="kimi", verdict="changes", changes=[]) == 0
    assert failures(service="kimi", verdict="changes", findings=[{"id": "unit-edited", "consequence": "x"}]) == 1


def test_a_declaration_that_reached_no_host_is_a_failure() -> None:
    unset, served = HostResult(note="is not set"), HostResult(services=[{"service": "kimi", "verdict": "committed"}])
    (failure,) = parsed(RunResult("deploy", {"gpu1": unset})).iter("failure")
    assert "is not set" in failure.attrib["message"]
    assert not list(parsed(RunResult("deploy", {"gpu1": unset, "gpu2": served})).iter("failure"))
