"""Real engines whose processes are broken for real: `verify` finds it, says what it is, and changes nothing."""

from __future__ import annotations

from tests.engines.tiny import CORE


def test_a_frozen_engine_fails_until_it_goes_on(tiny):
    """Its HTTP server still answers: only a completion shows that nothing computes."""
    before, pid = tiny.started(), tiny.core()
    tiny.host.run(["kill", "-STOP", pid])
    try:
        assert tiny.get("/v1/models") == 200
        done, found = tiny.run("verify")
    finally:
        tiny.host.run(["kill", "-CONT", pid])
    assert (done.code, found["verdict"]) == (1, "failed"), done.text
    assert [gate["id"] for gate in found["gates"] if gate["verdict"] == "failed"] == ["ready"]
    assert "no answer within 10 s (2 times in a row)" in found["message"]
    why = f"pid {pid} ({CORE[tiny.engine]}, tiny.service) is stopped by a signal ('kill -CONT {pid}' lets it go on)"
    assert why in found["message"]
    found = tiny.verify()
    assert found["verdict"] == "ok", found
    assert tiny.started() == before


def test_a_killed_engine_is_bad_until_systemd_has_brought_it_back(tiny):
    """The main process ends some seconds later: vLLM's with 0, SGLang's by SIGKILL."""
    before, restarts = tiny.started()
    tiny.host.run(["kill", "-KILL", tiny.core()])
    found = tiny.verify()
    assert found["verdict"] == "failed", found
    found = tiny.settled()
    assert found["verdict"] == "ok", found
    after = tiny.started()
    assert (after[0] != before, after[1]) == (True, restarts + 1)
    done, found = tiny.run("deploy")
    assert (done.code, found["verdict"]) == (0, "unchanged"), done.text
