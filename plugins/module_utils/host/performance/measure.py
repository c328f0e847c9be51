"""Measuring a running server: warm-up, repeats until the medians are known, streams at once."""

from __future__ import annotations

import random
import statistics
import threading
import time

from .. import load
from ..errors import HostError
from ..http import HttpError
from . import noise, stream, words
from .figures import KINDS, quantile

# Standard error of a median at which repeats end. With it a drop of 3 % and one of 10 % are told from 6.5 %.
PRECISION = 0.007
PRECISION_SECONDS = 0.002  # the same for times: a few milliseconds are the host's, not the engine's
LEAST = 3  # repeats, whatever time they take
SHORT_WORDS = 32
ROUNDS = 3  # requests a stream, when streams at once are measured
PAUSE_SECONDS = 0.5
LOOKS, LOOK_SECONDS = 4, 0.1
LOOKS_BESIDE = 2  # where nothing depends on it but what the record says of others
BESIDE_SECONDS = 5  # who measures a server that others use as well waits so long for them at each repeat
PART_OF_CONTEXT = 0.7  # for the long prompt: how many tokens its words make is an estimate at first


class Busy(Exception):
    """The server does other work, so that what is measured would not be its speed."""


class Meter:
    """Measures one running release within `seconds`, which begin after the warm-up.

    `seed` makes the prompts; without one they differ in every run, as what the run before has left in a prefix cache
    must not help. `check` is called after each request that failed, and may raise. `beside` measures a server that
    others use, too, instead of raising Busy.
    """

    def __init__(self, release, http, seconds, seed=None, check=lambda: None, beside=False):
        self.release = release
        self.http = http
        self.settings = release["verify"]["performance"]
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self.random = random.Random(self.seed)
        self.seconds = seconds
        self.end = time.monotonic() + seconds
        self.tokens_a_word = 1.0
        self.prompt_tokens = {}  # as the engine counted them
        self.check = check
        self.beside = beside
        self.own = []  # tokens of each answer
        self.failed = False  # a request of this repeat had to be made again
        self.disturbed = 0  # repeats that were not undisturbed
        self.most = 0  # requests of others that were seen at once
        self.told = False  # the engine's counters tell what others had between two looks
        self.shared = False  # others are no longer waited for

    def warm_up(self):
        """Have the engine do each kind of request once; gives what these first ones took, in seconds.

        Kernels are compiled and graphs captured at the first use of a size: first requests of half a minute and more
        are reported of engines that are fast ever after, so the bound is that of a load which stands still.
        """
        patience = max(self.release["verify"]["request_timeout"], self.release["verify"]["stall_timeout"])
        self._wait_idle(self._limit())
        first = self._one(self._prompt(SHORT_WORDS), self.settings["tokens"], patience)
        self.tokens_a_word = max(0.5, first.prompt_tokens / SHORT_WORDS)
        self.prompt_tokens["short"] = first.prompt_tokens
        prompt = self._long()
        long = self._one(prompt, 1, patience)
        # Known better from many words: what a long prompt takes must not differ from run to run by its length.
        self.tokens_a_word = max(0.5, long.prompt_tokens / (prompt.count(" ") + 1))
        self.prompt_tokens["long"] = long.prompt_tokens
        self.end = time.monotonic() + self.seconds
        return {"short": round(first.last, 3), "long": round(long.last, 3)}

    def single_stream(self, repeats, most, bounds=None):
        """Values of the single-stream figures by name, one a repeat.

        Repeats end when every compared median is known well, or when one is beyond its bound for sure, but after
        `repeats` at the earliest, and when `most` or the time is reached. Raises Busy, HttpError.
        """
        values = {"decode": [], "ttft": [], "ttft_long": [], "itl_p99": []}
        while True:
            try:
                short = self._undisturbed(lambda: self._one(self._prompt(SHORT_WORDS), self.settings["tokens"]))
                long = self._undisturbed(lambda: self._one(self._long(), 1))
            except Busy:
                if len(values["decode"]) >= LEAST:
                    return values
                raise
            values["decode"].append(short.decode)
            values["ttft"].append(short.first)
            values["ttft_long"].append(long.first)
            values["itl_p99"].append(quantile(short.gaps, 0.99))
            count = len(values["decode"])
            if count >= most or (count >= LEAST and time.monotonic() >= self.end):
                return values
            if count >= repeats and (_known(values) or _beyond(values, bounds or {})):
                return values

    def streams(self, count, rounds=ROUNDS):
        """`count` streams at once, each with `rounds` requests, one after the other; what they had, as plain data.

        Raises Busy, HttpError.
        """
        return self._undisturbed(lambda: self._streams(count, rounds))

    def _streams(self, count, rounds):
        self._together(count, 1, min(8, self.settings["tokens"]))  # a batch of this size for the first time
        answers, seconds = self._together(count, rounds, self.settings["tokens"])
        firsts, gaps = [one.first for one in answers], [gap for one in answers for gap in one.gaps]
        return {
            "concurrency": count,
            "requests": len(answers),
            "throughput": round(sum(one.tokens for one in answers) / seconds, 3),
            "decode": round(statistics.median(one.decode for one in answers), 3),
            "ttft": {"median": round(statistics.median(firsts), 6), "p99": round(quantile(firsts, 0.99), 6)},
            "itl": {"median": round(quantile(gaps, 0.5), 6), "p99": round(quantile(gaps, 0.99), 6)},
        }

    def throughput(self, count, repeats):
        """Tokens per second of `count` streams at once, one value a repeat."""
        return [self.streams(count, 1)["throughput"] for _repeat in range(repeats)]

    def others(self):
        """Requests of others that run or wait now; 0 also where the engine does not tell."""
        return load.requests(self.release, self.http) or 0

    def workload(self):
        """What was measured with, for the record."""
        return {
            "tokens": self.settings["tokens"],
            "prompt_tokens": dict(self.prompt_tokens),
            "prompt": "declared" if self.settings["prompt"] else "random words",
            "seed": self.seed,
            "disturbed": self.disturbed,
        }

    def _undisturbed(self, action):
        """Do something while nobody else uses the server, again if somebody did or the server was busy.

        Two looks at how many requests run do not show those that came and went between them: the tokens do.
        """
        limit = self._limit()
        while True:
            self._wait_idle(limit)
            before, known, self.failed = self._counted(), len(self.own), False
            result = action()
            if self.shared or not (self.failed or not self._idle() or self._surplus(before, known)):
                return result
            self.disturbed += 1
            if self._over(limit):
                return result

    def _limit(self):
        """Until when others are waited for."""
        return time.monotonic() + BESIDE_SECONDS if self.beside else self.end

    def _over(self, limit):
        """True when others are no longer waited for; from then on they never are. Raises Busy unless `beside`."""
        if not self.shared and time.monotonic() >= limit:
            if not self.beside:
                raise Busy("others use the server, or it is busy: its speed was not measured")
            self.shared = True
        return self.shared

    def _wait_idle(self, limit):
        while not (self._idle() or self._over(limit)):
            time.sleep(PAUSE_SECONDS)

    def _idle(self):
        """True when no request runs or waits. The engine may count one that has ended for a moment longer."""
        for _look in range(LOOKS_BESIDE if self.shared else LOOKS):
            others = self.others()
            if not others:
                return True
            time.sleep(LOOK_SECONDS)
        self.most = max(self.most, others)
        return False

    def _counted(self):
        """Tokens of all answers since the server began; None where it does not tell."""
        return load.read(self.release, self.http).answered

    def _surplus(self, before, known):
        """True when answers to others were counted since then, and when that is not told this once."""
        now = self._counted()
        if before is None or now is None:
            return self.told
        self.told = True
        found = now - before > sum(self.own[known:])
        self.most = max(self.most, int(found))
        return found

    def _together(self, count, rounds, tokens):
        answers, failures, lock = [], [], threading.Lock()
        prompts = [[self._prompt(SHORT_WORDS) for _round in range(rounds)] for _stream in range(count)]

        def one_stream(mine):
            try:
                for prompt in mine:
                    answer = self._one(prompt, tokens)
                    with lock:
                        answers.append(answer)
            except (HttpError, HostError) as error:
                failures.append(error)

        threads = [threading.Thread(target=one_stream, args=(mine,), daemon=True) for mine in prompts]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return answers, time.monotonic() - begin

    def _one(self, prompt, tokens, timeout=None):
        """One answer, from a server that may be busy. Raises HttpError, and what `check` raises."""
        path, model = self.release["endpoints"]["completions"][0], self.release["model"]["served_name"]
        timeout = timeout or self.release["verify"]["request_timeout"]
        answer = self._patiently(lambda: stream.complete(self.http, path, model, prompt, tokens, timeout))
        self.own.append(answer.prompt_tokens + answer.tokens)
        return answer

    def _patiently(self, call):
        return load.patiently(self.release, self.http, call, self._again)

    def _again(self):
        self.check()
        self.failed = True

    def _prompt(self, count):
        return self.settings["prompt"] or words.text(self.random, count)

    def _long(self):
        """The long prompt: as many words as make about the declared tokens, and leave room in the context."""
        wanted = self.settings["long_prompt"]
        if self._context():
            wanted = min(wanted, self._context() * PART_OF_CONTEXT)
        return words.text(self.random, max(1, int(wanted / self.tokens_a_word)))

    def _context(self):
        """Context length in tokens: declared, else as the server reports it; None where neither tells."""
        if not hasattr(self, "_length"):
            self._length = self.release["model"]["context_length"]
            if self._length is None:
                models = self._patiently(lambda: self.http.json("GET", self.release["endpoints"]["models"][0]))
                self._length = (models.get("data") or [{}])[0].get("max_model_len")
        return self._length


def _known(values):
    """True when the median of every compared figure is known well enough."""
    for name, found in values.items():
        if not KINDS[name].compared:
            continue
        fraction = PRECISION
        if KINDS[name].unit == "s":
            fraction = max(fraction, PRECISION_SECONDS / statistics.median(found))
        if not noise.precise(found, fraction):
            return False
    return True


def _beyond(values, bounds):
    return any(
        name in bounds and noise.surely_beyond(found, bounds[name].value, KINDS[name].more_is_better)
        for name, found in values.items()
    )
