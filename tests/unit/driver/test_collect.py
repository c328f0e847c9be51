"""From events to results."""

from __future__ import annotations

from typing import Any

from servewright.driver.collect import Collector

OK = {"service": "kimi", "verdict": "committed"}
BAD = {"service": "kimi", "verdict": "rolled_back"}


def event(kind: str, host: str, **result: Any) -> dict[str, Any]:
    return {"event": f"runner_on_{kind}", "event_data": {"host": host, "res": result}, "stdout": ""}


def answer(*services: dict[str, Any], problems: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"command": "deploy", "services": list(services), "problems": problems or []}


def test_each_host_has_its_own_result() -> None:
    collector = Collector("deploy")
    collector.feed(event("ok", "gpu1", changed=True, servewright=answer(OK)))
    collector.feed(event("failed", "gpu2", failed=True, msg="kimi: rolled_back", servewright=answer(BAD)))
    collector.feed(event("failed", "gpu3", failed=True, msg="Task failed: boom"))
    collector.feed(event("unreachable", "gpu4", unreachable=True, msg="no"))
    hosts = collector.result(2 | 4).hosts

    assert hosts["gpu1"].services == [OK]
    assert (hosts["gpu2"].services, hosts["gpu2"].error) == ([BAD], "")  # the verdict says it all
    assert (hosts["gpu3"].error, hosts["gpu3"].unreachable) == ("boom", False)
    assert hosts["gpu4"].unreachable


def test_a_failure_that_no_verdict_explains_is_an_error() -> None:
    collector = Collector("deploy")
    collector.feed(event("failed", "gpu1", failed=True, msg="disk full", servewright=answer(OK)))

    assert collector.result(2).hosts["gpu1"].error == "disk full"


def test_keys_that_are_missing_are_no_error() -> None:
    collector = Collector("status")
    collector.feed(event("ok", "gpu1", servewright={}))

    result = collector.result(0)
    assert (result.error, result.hosts["gpu1"].services, result.hosts["gpu1"].problems) == ("", [], [])


def test_no_host_at_all_is_an_error_though_ansible_calls_it_success() -> None:
    collector = Collector("deploy")
    collector.feed({"event": "playbook_on_no_hosts_matched", "event_data": {}, "stdout": "skipping: no hosts matched"})

    assert collector.result(0).error


def test_an_error_of_the_run_is_told() -> None:
    collector = Collector("deploy")
    collector.feed({"event": "error", "event_data": {}, "stdout": "[ERROR]: YAML parsing failed: no indicator."})

    assert collector.result(4).error == "YAML parsing failed: no indicator."


def test_a_run_that_was_stopped_has_no_error_of_its_own() -> None:
    result = Collector("deploy").result(254, interrupted=2)

    assert (result.error, result.interrupted) == ("", 2)
