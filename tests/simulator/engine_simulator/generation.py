"""Turning a request into text at a pace: what is said, how fast, and when the engine stops answering."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import answers, model, tokens
from .launch import Launch
from .link import Link
from .misbehaviour import Misbehaviour

TOKENS_PER_SECOND = 250.0
PREFILL_TOKENS_PER_SECOND = 40000.0
FIRST_TOKEN_SECONDS = 0.02
COLD_SIZES = (24, 400)  # SIM_COLD_SECONDS: prompt tokens from which other kernels have to be compiled
TICK = 0.004  # the shortest wait between two pieces: faster speeds put several tokens into one piece
CONFIRM_EVERY = 0.1  # how often a running answer asks whether the engine still lives


class Job(NamedTuple):
    """One sequence to generate."""

    prompt: str
    prompt_tokens: int
    pieces: list[str]
    finish_reason: str


class Piece(NamedTuple):
    """Some text of an answer, the tokens up to here, and how the answer ended if it did."""

    text: str
    tokens: int
    finish_reason: str | None


class Counters:
    """What /metrics and the throughput lines show; the lock is held for additions only."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = 0
        self.waiting = 0
        self.requests = 0
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.steps = 0.0
        self.finished: dict[str, int] = {}
        self.first_token_seconds = 0.0
        self.first_tokens = 0

    def add(self, **amounts: float) -> None:
        with self.lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def finish(self, reason: str) -> None:
        with self.lock:
            self.finished[reason] = self.finished.get(reason, 0) + 1


class BrokenOff(Exception):
    """SIM_TRUNCATE_STREAM: the connection ends in the middle of the answer."""


class EngineGone(Exception):
    """The engine died or shut down while the request ran; vLLM alone still answers then."""


def make_job(
    bad: Misbehaviour,
    prompt: str,
    prompt_tokens: int,
    max_tokens: int,
    options: dict[str, Any],
    answer: str | None,
) -> Job:
    """Decide the answer. `answer`: what a right model says; None makes pseudo text of the prompt.

    `options` is the request: temperature, seed, stop, ignore_eos.
    """
    if bad.empty_answer:
        return Job(prompt, prompt_tokens, [], "stop")
    if bad.gibberish:
        return Job(prompt, prompt_tokens, gibberish(prompt, max_tokens), "length")
    if bad.garbage or bad.repeat_word:
        return Job(prompt, prompt_tokens, ["!" if bad.garbage else " the"] * max_tokens, "length")
    hot = float(options.get("temperature", 1.0) or 0.0) > 0
    salt = str(options.get("seed", random.random())) if hot else ""
    pieces = tokens.pieces(answer) if answer is not None else []
    endless = bool(options.get("ignore_eos"))
    if endless:
        pieces += answers.pseudo_text(prompt, salt, max(0, max_tokens - len(pieces)))
    elif answer is None:
        pieces = answers.pseudo_text(prompt, salt, 40 + len(prompt) % 60)
    finish = "length" if endless or len(pieces) >= max_tokens else "stop"
    pieces = pieces[:max_tokens]
    for stop in _stops(options):
        text = "".join(pieces)
        if stop in text:
            pieces, finish = tokens.pieces(text[: text.index(stop)]), "stop"
    return Job(prompt, prompt_tokens, pieces, finish)


def gibberish(prompt: str, count: int) -> list[str]:
    """Tokens that look like words and say nothing."""
    return [" " + hashlib.sha256(f"{prompt}{n}".encode()).hexdigest()[: 3 + n % 7] for n in range(count)]


def _stops(options: dict[str, Any]) -> list[str]:
    stop = options.get("stop") or []
    return [stop] if isinstance(stop, str) else list(stop)


class Generator:
    """Paces answers and counts them."""

    def __init__(self, launch: Launch, bad: Misbehaviour, link: Link, counters: Counters) -> None:
        self.launch = launch
        self.bad = bad
        self.link = link
        self.counters = counters
        self.aborted = threading.Event()
        self._compiled: set[int] = set()
        self._slots = threading.BoundedSemaphore(launch.max_running)

    def run(self, job: Job) -> Iterator[Piece]:
        """Yield pieces, the last with a finish reason. Raises EngineGone; waits for ever where the engine hangs."""
        self.counters.add(waiting=1)
        with self._slots:
            self.counters.add(waiting=-1, running=1, requests=1)
            limit = self.bad.hang_after_requests
            if self.bad.post_hangs or (limit is not None and self.counters.requests > limit):
                threading.Event().wait()
            try:
                for piece in self._run(job):
                    if piece.finish_reason:
                        self.counters.finish(piece.finish_reason)
                    yield piece
            finally:
                self.counters.add(running=-1)

    def warm_up(self) -> bool:
        """The engine's own first request, neither counted nor subject to the SIM_ hangs; False when it died of it."""
        alive = self.link.confirm()
        time.sleep(min(FIRST_TOKEN_SECONDS, self.bad.load_seconds * 0.1))
        return alive

    def _check(self) -> None:
        if self.launch.engine == "vllm" and model.is_mla(self.launch.config) and not model.mla_fits(self.launch.config):
            self.link.fatal("RuntimeError: Unsupported head dimensions of multi-head latent attention")
        if self.link.confirm() or self.aborted.is_set():
            return
        if self.launch.engine == "sglang":
            threading.Event().wait()  # until the launcher has noticed the death and kills itself
        raise EngineGone

    def _run(self, job: Job) -> Iterator[Piece]:
        bad = self.bad
        if bad.gibberish_batch and self.counters.running > 1:
            job = job._replace(pieces=gibberish(job.prompt, len(job.pieces)))
        self._check()
        factor = bad.speed * (5.0 if bad.garbage else 1.0)
        if bad.noise:
            factor *= 1.0 + random.uniform(-bad.noise, bad.noise)
        first = FIRST_TOKEN_SECONDS / factor if bad.first_token_seconds is None else bad.first_token_seconds
        first += job.prompt_tokens / (PREFILL_TOKENS_PER_SECOND * factor)
        size = sum(job.prompt_tokens >= limit for limit in COLD_SIZES)
        if size not in self._compiled:
            self._compiled.add(size)
            first += bad.cold_seconds
        time.sleep(first)
        self.counters.add(prompt_tokens=job.prompt_tokens, first_tokens=1, first_token_seconds=first)
        total = len(job.pieces)
        if total == 0:
            yield Piece("", 0, job.finish_reason)
        # What goes on as a list does is easily drafted, random words are not.
        accepted = bad.accept_length if job.prompt.endswith(",") else bad.accept_others
        begin = confirmed = time.monotonic()
        done = 0
        while done < total:
            due = min(total, int((time.monotonic() - begin) * TOKENS_PER_SECOND * factor) + 1)
            if due > done:
                if bad.truncate_stream and due > total // 2 and total > 1:
                    raise BrokenOff
                self.counters.add(generated_tokens=due - done, steps=(due - done) / accepted)
                yield Piece("".join(job.pieces[done:due]), due, job.finish_reason if due == total else None)
                done = due
            if time.monotonic() - confirmed > CONFIRM_EVERY:
                self._check()
                confirmed = time.monotonic()
            if done < total:
                if self.aborted.is_set():
                    yield Piece("", done, "abort")
                    return
                time.sleep(max(TICK, begin + done / (TOKENS_PER_SECOND * factor) - time.monotonic()))
