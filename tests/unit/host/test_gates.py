"""The parts of gates that decide, on values as engines give them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import libraries, load, proc, reference, sanity
from ansible_collections.servewright.llm.plugins.module_utils.host.gates import (
    answers,
    burst,
    engine,
    identity,
    speculation,
)
from ansible_collections.servewright.llm.plugins.module_utils.host.http import HttpError

STATES = "internal_states.*.effective_max_running_requests_per_dp"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Paris, the capital of France, lies on the Seine.", None),
        ("| a | b |\n|---|---|\n" + "-" * 80 + "\n" + "=" * 80, None),
        ("1, 1, 2, 3, 5, 8", None),
        ("ha ha ha ha", None),
        ("the cat and the dog and the cat and the dog and the cat and the dog", None),
        ("caf\ufffd", None),
        ("!" * 16, "'!' 16 times in a row"),
        ("\u2501" * 40 + "\u3000" * 20 + "\u2500 " * 40, None),
        ("Port" * 24, "'Port' 24 times in a row"),
        ("foo bar " * 20, "'foo bar ' 20 times in a row"),
        (" the" * 12, "the word 'the' 8 times in a row"),
        ("a\ufffd b\ufffd c\ufffd " * 3, "bytes that are no text"),
    ],
)
def test_text_that_no_model_means_is_told_from_odd_but_right_text(text, fault):
    found = sanity.degenerate(text)
    assert (found is None) if fault is None else (fault in found)


@pytest.mark.failure("4.10")
@pytest.mark.parametrize(
    ("info", "values"),
    [
        ({"internal_states": [{"effective_max_running_requests_per_dp": 48}]}, [48]),
        ({"internal_states": [None, {"effective_max_running_requests_per_dp": 48}, {}]}, [48]),
        ({"internal_states": []}, []),
        ({"internal_states": None}, []),
        ({}, []),
        (None, []),
        ("not a mapping", []),
    ],
)
def test_4_10_server_info_of_any_shape_is_read_or_counts_as_not_reported(info, values):
    assert engine.from_info(info, STATES) == values


@pytest.mark.parametrize(
    ("name", "declared", "values", "agree"),
    [
        ("attention_backend", "flashinfer", ["FLASHINFER"], True),
        ("attention_backend", "FLASH_ATTN", ["FLASHINFER", "FLASH_ATTN"], True),
        ("attention_backend", "flashinfer", ["triton"], False),
        ("attention_backend", "flashinfer", ["flashinfer", "triton"], True),  # of parts of the model, told by the log
        ("max_running_requests", 48, [64, 48], True),
        ("max_running_requests", 64, [64, 48], False),
        ("max_total_tokens", 8192, [8128], True),
        ("max_total_tokens", 8192, [4096], False),
        ("tp_size", 8, ["8"], True),
        ("tensor_parallel_size", 8, ["4"], False),
        ("dtype", "half", ["float16"], True),
        ("kv_cache_dtype", "fp8_e4m3", ["torch.float8_e4m3fn"], True),
        ("kv_cache_dtype", "fp8_e5m2", ["torch.bfloat16"], False),
        ("speculative_algorithm", "NEXTN", ["EAGLE"], True),
        ("speculation", True, ["None"], False),
        ("speculation", True, ["SpeculativeConfig"], True),
    ],
)
def test_declared_and_effective_agree_whatever_the_engine_calls_it(name, declared, values, agree):
    assert engine.agrees(name, declared, values) is agree


def test_no_rank_may_have_another_attention_backend():
    assert engine.agrees("attention_backend", "flashinfer", ["flashinfer", "flashinfer"], ranks=True)
    assert not engine.agrees("attention_backend", "flashinfer", ["flashinfer", "triton"], ranks=True)


@pytest.mark.parametrize(("right", "verdict"), [(4, "passed"), (2, "passed"), (1, "failed"), (0, "failed")])
def test_most_known_answers_must_be_right_among_other_requests(monkeypatch, right, verdict):
    """Of 32 requests 4 have a known answer. Kernels may be wrong for a batch alone."""
    answered = iter([" Paris"] * right + [" banana"] * 4)

    def complete(prompt, max_tokens, **options):
        return SimpleNamespace(text=next(answered) if prompt.endswith("France is") else f" {prompt[7:9]} and so on")

    known = {"prompt": "The capital of France is", "expect": "Paris", "max_tokens": 16, "mode": "completion"}
    prompts = [{**known, "mode": "chat"}, known]
    run = SimpleNamespace(
        verify={"burst": {"requests": 32, "concurrency": 1}, "prompts": prompts, "quality": True},
        release={"observed": {}},
        complete=complete,
    )
    watch = SimpleNamespace(most=lambda: 1, samples=[])
    monkeypatch.setattr(burst, "_Watch", lambda run: contextlib.nullcontext(watch))
    found, message, evidence = burst.gate(run)
    assert (found, evidence["known_answers"], evidence["wrong"]) == (verdict, 4, 4 - right)
    assert ("known answers were wrong among others: 'The capital" in message) == (verdict == "failed")


@pytest.mark.parametrize(
    ("told", "declared", "same"),
    [
        ("0.5.23", "0.5.23", True),
        ("0.32.0+cpu", "0.32.0", True),
        ("0.5.22", "0.5.23", False),
        ("0.0.0.dev1+g97c09da", "0.5.23", True),
    ],
)
def test_another_engine_version_is_told_from_another_build(told, declared, same):
    assert identity.same_version(told, declared) is same


def test_a_plateau_of_running_requests_is_told_from_a_server_that_has_not_got_more():
    def looks(*pairs, cache=0.1):
        return [load.Load({"running": running, "queued": queued, "cache": cache}) for running, queued in pairs]

    assert burst.plateau(looks((2, 0), (4, 8), (4, 6), (4, 2), (1, 0)), 12) == 4
    assert burst.plateau(looks((4, 8), (12, 2), (4, 0)), 12) is None
    assert burst.plateau(looks((4, 0), (4, 0), (4, 0)), 12) is None  # nothing waited
    assert burst.plateau(looks((4, 8), (4, 6), (4, 2), cache=0.95), 12) is None  # for the KV cache, not for a place
    assert burst.plateau(looks((None, None)), 12) is None


@pytest.mark.failure("5.8")
def test_5_8_acceptance_is_measured_over_the_answers_of_the_gate_alone():
    before = {"drafts": 1000.0, "accepted": 3000.0}
    assert speculation.measured(before, {"drafts": 1100.0, "accepted": 3010.0}) == pytest.approx(1.1)
    assert speculation.measured(before, before) is None  # nothing was drafted
    assert speculation.measured({}, {}) is None
    steps = {"tokens": 9000.0, "steps": 3000.0}, {"tokens": 9256.0, "steps": 3200.0}
    assert speculation.measured(*steps) == pytest.approx(1.28)
    assert speculation.measured({}, steps[1]) == pytest.approx(9256 / 3200)
    assert speculation.measured(steps[1], steps[1]) is None


def test_counters_are_added_up_over_ranks_and_names():
    text = (
        '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} 3.0\n'
        'vllm:num_requests_running{engine="1"} 2.0\nvllm:num_requests_waiting_by_reason{reason="x"} 9.0\n'
        "vllm:prompt_tokens_total 1e3\n"
    )
    names = {"running": ["vllm:num_requests_running"], "queued": ["vllm:num_requests_waiting"],
             "tokens": ["vllm:prompt_tokens_total", "vllm:generation_tokens_total"]}  # fmt: skip
    assert load.parse(text, names) == {"running": 5.0, "tokens": 1000.0}


class Server:
    """A server whose requests fail in the given ways, and whose token counter moves while it is busy."""

    def __init__(self, outcomes, busy=False):
        self.outcomes, self.busy, self.tokens = list(outcomes), busy, 0

    def text(self, path, timeout=None):
        self.tokens += self.busy
        return f"tokens {self.tokens}\n"

    def call(self):
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, HttpError):
            raise outcome
        return outcome


def _ask(server, monkeypatch, **verify):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(load.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(load.time, "sleep", lambda seconds: setattr(clock, "now", clock.now + 10))
    release = {"verify": {"attempts": 3, "busy_timeout": 300, **verify}, "metrics": {"tokens": ["tokens"]}}
    return load.patiently(release, server, server.call)


def test_busy_is_not_dead(monkeypatch):
    """A server that refuses for 40 s, or times out while it works for others, is waited for; others fail at once."""
    silent, full, bad = HttpError("no answer"), HttpError("status 503", 503), HttpError("status 400", 400)
    assert _ask(Server([full] * 4 + ["fine"]), monkeypatch) == "fine"
    assert _ask(Server([silent] * 20 + ["fine"], busy=True), monkeypatch) == "fine"
    assert _ask(Server([silent] * 2 + ["fine"]), monkeypatch) == "fine"
    with pytest.raises(HttpError, match="3 times in a row"):
        _ask(Server([silent] * 3 + ["too late"]), monkeypatch)
    with pytest.raises(HttpError, match=r"verify\.busy_timeout"):
        _ask(Server([full] * 60), monkeypatch)
    with pytest.raises(HttpError, match="status 400"):
        _ask(Server([bad, "never asked"]), monkeypatch)


def test_another_wording_is_the_same_model_and_nonsense_is_not():
    old = {"a": "7, 8, 9, 10, 11, 12", "b": "once there was a fisherman who lived by the sea"}
    assert not reference.differs(old, {"a": "7, 8, 9, 10", "b": "a small girl found a shell and took it home"})
    assert not reference.differs(old, {"other prompt": "x"})
    assert reference.differs(old, {"a": "qx vorr ny", "b": "MethodInfo yage egeb ensa tunya"})


def test_a_reference_is_kept_for_the_same_files_of_a_model_alone(root, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "b.safetensors").write_bytes(b"weights")
    (model / "a.json").write_text("{}")
    release = {"service": "kimi", "engine": "vllm", "version": "1", "model": {"path": str(model)}}
    assert reference.recorded(release) is None
    reference.keep(release, {"a": "b"})
    assert reference.recorded(release)["answers"] == {"a": "b"}
    (model / "b.safetensors").write_bytes(b"other weights")
    assert reference.recorded(release) is None


def test_a_long_prompt_hides_its_word_in_the_middle_and_repeats_no_line():
    prompt = answers.long_prompt(250)
    lines = prompt.splitlines()
    assert len(set(lines)) == len(lines)
    assert 0.4 < prompt.index(answers.NEEDLE) / len(prompt) < 0.6


@pytest.mark.parametrize("characters", [1, 2, 4, 6])
@pytest.mark.parametrize(("context", "wanted"), [(2048, 1024), (None, 1024), (131072, 4000)])
def test_a_long_prompt_is_as_long_as_asked_for_with_any_tokenizer(characters, context, wanted):
    """Some make a token of each byte: then a prompt of so many words would not fit the context."""
    asked = []

    def complete(prompt, _tokens):
        asked.append(len(prompt) // characters)
        return SimpleNamespace(text=answers.NEEDLE, prompt_tokens=asked[-1])

    run = SimpleNamespace(verify={"long_prompt": 4000, "quality": True}, context=context, complete=complete)
    answers._long(run, {})
    assert 0.8 * wanted < asked[-1] < 1.2 * wanted


def test_a_library_replaced_under_a_process_is_seen(tmp_path):
    """A real process with a real library mapped, which is then removed."""
    venv, library = tmp_path / "venv", tmp_path / "venv" / "lib" / "libnccl.so.2"
    library.parent.mkdir(parents=True)
    libc = next(line.split()[-1] for line in proc.maps(os.getpid()).splitlines() if "libc.so" in line)
    shutil.copy(libc, library)
    code = f"import ctypes, sys; ctypes.CDLL({str(library)!r}); print('up', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"up\n"
        release = {"venv": str(venv), "environment": {}}
        assert libraries.differences(release, [child.pid]) == []
        (found,) = libraries.differences({**release, "venv": "/opt/other"}, [child.pid])
        assert (found["field"], found["running"]) == ("library libnccl.so.2", str(library))
        declared = {"venv": "/opt/other", "environment": {"LD_PRELOAD": str(library)}}
        assert libraries.differences(declared, [child.pid]) == []
        os.unlink(library)
        (found,) = libraries.differences(release, [child.pid])
        assert found["running"] == f"{library} (replaced since the start)"
    finally:
        child.communicate()


def test_maps_of_a_process_that_has_ended_are_empty():
    assert proc.maps(1 << 22) == ""


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGSTOP, "is stopped by a signal ('kill -CONT {}' lets it go on)"),
        (signal.SIGKILL, "has ended, and its parent has not noticed"),
    ],
)
def test_a_process_that_does_nothing_is_named_with_the_reason(number, words):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert proc.stuck(process.pid) is None
        process.send_signal(number)
        end = time.monotonic() + 10
        while (found := proc.stuck(process.pid)) is None:
            assert time.monotonic() < end
        process.kill()
    assert found.startswith(f"pid {process.pid} (")
    assert words.format(process.pid) in found
