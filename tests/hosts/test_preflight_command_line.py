"""The engine's own parser is asked before anything is stopped, and what it would take silently is refused, too."""

from __future__ import annotations

import io
import zipfile

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import library
from tests.hosts.commands import Library, invocation
from tests.hosts.faults import release

PACKAGES = "/opt/servewright/engines/sglang-0.5.23/lib/python3.11/site-packages"


@pytest.fixture(scope="module")
def serving(testbed, simulator):
    """A host on which `release()` serves; no test here may touch it."""
    host = testbed.boot("parser", prepare=simulator)
    found = Library(host)
    result = found.deploy(release())
    assert result["verdict"] == "committed", result
    yield found
    testbed.destroy(host)


def declare(engine, **changes):
    if engine == "vllm":
        changes = {"options": {}, **changes}
    return release(engine=engine, **changes)


def of_parser(result):
    return [check for check in result["checks"] if check["id"] == "command_line"]


LONG = {"model": {"path": "/opt/simulator/model", "served_name": "kimi-k2.5", "context_length": 999999}}
THREE = {"gpus": [0, 1, 2], "parallelism": {"tensor": 3}}
REFUSED = [
    ("sglang", {"extra_args": {"no-such-flag": "1"}}, "has no flag --no-such-flag", "leave it out"),
    ("sglang", {"extra_args": {"schedule-polisy": "fcfs"}}, "has no flag --schedule-polisy",
     "did you mean --schedule-policy?"),
    ("sglang", {"extra_args": {"cuda-graph-max-bs": 4}}, "has no flag --cuda-graph-max-bs any more since 0.5.22",
     "declare cuda-graph-max-bs-decode"),
    ("sglang", {"extra_args": {"enable-ep-moe": True}}, "has no flag --enable-ep-moe any more", "parallelism.expert"),
    ("sglang", {"extra_args": {"stream-interv": 2}}, "--stream-interv is an abbreviation of --stream-interval",
     "write --stream-interval"),
    ("sglang", {"extra_args": {"dcp-size": 1, "decode-context-parallel-size": 1}},
     "--dcp-size and --decode-context-parallel-size set the same option", "declare one of them"),
    ("sglang", {"extra_args": {"stream-interval": "often"}}, "argument --stream-interval: invalid",
     "declare a value it takes"),
    ("sglang", {"extra_args": {"schedule-policy": "best"}}, "invalid choice: 'best'", ""),
    ("sglang", {"extra_args": {"json-model-override-args": "{'a': 1}"}}, "is not JSON", ""),
    ("sglang", LONG, "refuses this model with these arguments: ", "declare what the model can do"),
    ("sglang", THREE, "must be divisible by tp_size 3", ""),
    ("vllm", {"extra_args": {"no-such-flag": "1"}}, "has no flag --no-such-flag", ""),
    ("vllm", {"extra_args": {"disable-log-requests": True}}, "has no flag --disable-log-requests any more since 0.12.0",
     "leave it out: requests are not logged"),
    ("vllm", {"extra_args": {"max-log-le": 5}}, "--max-log-le is an abbreviation of --max-log-len", ""),
    ("vllm", {"extra_args": {"attention-config": {}, "-ac": {}}}, "--attention-config", "declare one of them"),
    ("sglang", {"extra_args": {"pp": 1, "pp-async-batch-depth": 1}}, "has no flag --pp", "--pp-size?"),
    ("vllm", {"options": {"max_num_seqs": 8}, "extra_args": {"seed": "some"}}, "argument --seed: invalid", ""),
    ("vllm", {"extra_args": {"compilation-config": "{mode: 3}"}}, "argument --compilation-config", ""),
    ("vllm", {"options": {"enable_auto_tool_choice": True}}, "requires --tool-call-parser", ""),
    ("vllm", LONG, "User-specified max_model_len (999999) is greater", ""),
    ("vllm", THREE, "must be divisible by tensor parallel size (3)", ""),
]  # fmt: skip


@pytest.mark.failure("4.15", "4.16")
@pytest.mark.parametrize(("engine", "changes", "message", "repair"), REFUSED)
def test_4_15_and_4_16_a_command_line_that_the_engine_would_not_take_as_meant_is_refused(
    serving, engine, changes, message, repair
):
    before = invocation(serving.host)
    (result,) = serving.begin(declare(engine, **changes))
    assert result["verdict"] == "refused", result
    (found,) = of_parser(result)
    assert message in found["message"]
    assert repair in found["repair"]
    assert invocation(serving.host) == before


def asked(host):
    """How often an engine's parser has been run on the host."""
    host.run("journalctl --sync")
    log = host.run("journalctl -o cat --no-pager _PID=1").stdout
    return sum(line.startswith("Started servewright-preflight-kimi-") for line in log.splitlines())


def plan(library, declared):
    (result,) = library.call("deploy", [declared], {}, True)
    return result


def test_the_answer_is_kept_until_something_that_it_rests_on_changes(serving):
    changed = release(extra_args={"log-level": "info"})
    before = asked(serving.host)
    for cached in (False, True, True):
        (found,) = of_parser(plan(serving, changed))
        assert (found["passed"], found["evidence"]["cached"]) == (True, cached)
    assert asked(serving.host) == before + 1
    assert plan(serving, release())["verdict"] == "unchanged"  # which asks nobody
    assert asked(serving.host) == before + 1
    serving.host.run("touch /opt/simulator/model/config.json")
    assert not of_parser(plan(serving, changed))[0]["evidence"]["cached"]
    assert asked(serving.host) == before + 2


@pytest.mark.failure("3.12")
def test_3_12_an_engine_that_the_services_user_cannot_import_is_refused(serving):
    """Root could."""
    serving.host.run(f"chmod 700 {PACKAGES}/engine_simulator")
    try:
        result = plan(serving, release(extra_args={"log-level": "debug"}))
    finally:
        serving.host.run(f"chmod 755 {PACKAGES}/engine_simulator")
    assert result["verdict"] == "refused"
    assert "as user llm-kimi, sglang cannot be imported" in result["message"]


def test_an_environment_of_another_version_is_refused(serving):
    serving.host.run(f"cd {PACKAGES} && sed -i s/0.5.23/0.5.21/ sglang-0.5.23.dist-info/METADATA")
    try:
        result = plan(serving, release(extra_args={"log-level": "debug"}))
    finally:
        serving.host.run(f"cd {PACKAGES} && sed -i s/0.5.21/0.5.23/ sglang-0.5.23.dist-info/METADATA")
    assert "holds sglang 0.5.21, declared is 0.5.23" in result["message"]


def test_a_parser_that_is_not_where_it_was_is_a_warning(serving):
    """A version of tomorrow must be deployable."""
    serving.host.run(f"mv {PACKAGES}/sglang/srt/server_args.py /root/")
    try:
        result = plan(serving, release(extra_args={"log-level": "debug"}))
    finally:
        serving.host.run(f"mv /root/server_args.py {PACKAGES}/sglang/srt/")
    (found,) = of_parser(result)
    assert (result["verdict"], found["severity"]) == ("changes", "warning")
    assert "is not where it was in known versions" in found["message"]


def test_a_parser_that_hangs_is_ended_with_all_it_started(serving):
    impatient = zip_with(serving.host, "preflight/command_line.py", "TIMEOUT_SECONDS = 180", "TIMEOUT_SECONDS = 3")
    hang = "import os, time; os.fork() or os.setsid(); time.sleep(987)"
    package = f"{PACKAGES}/sglang"
    serving.host.run(f"cp {package}/__init__.py /root/; rm -r {package}/__pycache__")
    serving.host.run(f"echo '{hang}' > {package}/__init__.py")
    try:
        result = plan(impatient, release(extra_args={"log-level": "warning"}))
    finally:
        serving.host.run(f"cp /root/__init__.py {package}/")
    (found,) = of_parser(result)
    assert (result["verdict"], found["severity"]) == ("changes", "warning")
    assert "did not answer within 3 s" in found["message"]
    assert serving.host.run("pgrep -f '[j]ob.pop'", check=False).stdout == ""
    assert serving.call("verify", "kimi")["verdict"] == "ok"


def zip_with(host, name, old, new):
    """The host library with one line changed, put on the host for this one test's calls; the next deploy mends it."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(library.pack())) as source, zipfile.ZipFile(target, "w") as copy:
        for entry in source.infolist():
            text = source.read(entry)
            if entry.filename.endswith(name):
                assert old.encode() in text
                text = text.replace(old.encode(), new.encode())
            copy.writestr(entry, text)
    found = Library(host)
    (host.root / "usr/local/lib/servewright/host.pyz").write_bytes(target.getvalue())
    return found
