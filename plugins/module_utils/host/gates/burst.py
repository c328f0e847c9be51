"""Are many short requests at once all answered, and rightly?"""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed

from .. import load, sanity
from ..errors import HostError
from ..http import HttpError
from .run import FAILED, PASSED

TOKENS = 16
KNOWN_EVERY = 8  # this many requests have one with a known answer among them
SAMPLE_SECONDS = 0.1
PLATEAU = 3  # looks in a row at a server that runs no more though requests wait, before that is its limit
CACHE_FULL = 0.9  # above it requests wait for room in the KV cache, and not for a place in the batch


def gate(run):
    """`verify.burst.requests` short requests are all answered.

    A server, mostly one that was started after a SIGKILL, can answer a hundred and hang (sgl-project/sglang#22779). One
    whose kernels are wrong for a batch alone answers each request by itself rightly: some have known answers, and most
    of those must be right. Not all: in a batch rounding differs. Where the engine does not report its request limit, a
    declared one is looked for in the counters meanwhile.
    """
    burst, wanted = run.verify["burst"], run.release["observed"].get("max_running_requests")
    count, together = burst["requests"], burst["concurrency"]
    if not count:
        return PASSED, "none declared", {}
    if wanted:
        together, count = max(together, wanted), max(count, 2 * wanted)
    with _Watch(run) as watch:
        failures, answers = _send(run, count, together)
    evidence = {"requests": count, "concurrency": together, "answered": len(answers), "most_running": watch.most()}
    if failures:
        return FAILED, f"{count - len(answers)} of {count} short requests were not answered: {failures[0]}", evidence
    known = [wrong for wrong in answers if wrong is not None]
    evidence.update(known_answers=len(known), wrong=len(list(filter(None, known))))
    if 2 * evidence["wrong"] > len(known):
        wrong = next(filter(None, known))
        return FAILED, f"{evidence['wrong']} of {len(known)} known answers were wrong among others: {wrong}", evidence
    limit = plateau(watch.samples, wanted) if wanted else None
    if limit is not None:
        message = f"never more than {limit} requests ran at once though more waited, declared are {wanted}"
        return FAILED, message, evidence
    return PASSED, f"{count} short requests answered", evidence


def _send(run, count, together):
    """Failures, in words, and what _one gives for the requests that were answered."""
    failures, answers = [], []
    with ThreadPoolExecutor(min(count, together)) as pool:
        futures = [pool.submit(_one, run, number) for number in range(count)]
        for future in as_completed(futures):
            if future.cancelled():
                continue
            try:
                answers.append(future.result())
            except (HttpError, HostError) as error:
                failures.append(str(error))
                for other in futures:  # one that was not answered decides: the rest need not be waited for
                    other.cancel()
    return failures, answers


def _one(run, number):
    """Send a request; None, or of one with a known answer what is wrong with it ("": nothing)."""
    known = [prompt for prompt in run.verify["prompts"] if prompt["mode"] == "completion"]
    turn, other = divmod(number, KNOWN_EVERY)
    if known and not other:
        prompt = known[turn % len(known)]
        text = run.complete(prompt["prompt"], prompt["max_tokens"]).text
        return "" if re.search(prompt["expect"], text) else f"{prompt['prompt']!r} was answered with {text[:80]!r}"
    answer = run.complete(f"Number {number} of a list. The number {number} is", TOKENS, ignore_eos=True)
    fault = sanity.degenerate(answer.text) if run.verify["quality"] else None
    if fault:
        raise HttpError(f"an answer with {fault}")
    return None


class _Watch:
    """Looks at the server's counters while the requests run."""

    def __init__(self, run):
        self.run, self.samples, self.over = run, [], threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self.over.wait(SAMPLE_SECONDS):
            self.samples.append(load.read(self.run.release, self.run.http))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.over.set()
        self.thread.join()

    def most(self):
        return max((sample.running for sample in self.samples if sample.running is not None), default=None)


def plateau(samples, wanted):
    """The number of requests that a server does not go beyond though more wait, if that is below `wanted`."""
    top = max((sample.running for sample in samples if sample.running is not None), default=None)
    if top is None or top >= wanted:
        return None
    row = 0
    for sample in samples:
        stuck = sample.running == top and (sample.queued or 0) > 0 and (sample.cache or 0) < CACHE_FULL
        row = row + 1 if stuck else 0
        if row >= PLATEAU:
            return int(top)
    return None
