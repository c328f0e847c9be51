"""One streamed completion, timed on the monotonic clock, with the tokens that the engine counted."""

from __future__ import annotations

import time
from typing import NamedTuple

from ..completions import chunks
from ..http import HttpError


class Streamed(NamedTuple):
    """A whole answer. Times are seconds since the request was sent."""

    first: float  # when the first piece came
    last: float  # when the last one came
    gaps: tuple[float, ...]  # between two pieces
    tokens: int  # as counted by the engine: a piece may hold several
    prompt_tokens: int

    @property
    def decode(self):
        """Tokens per second after the first."""
        if self.last <= self.first:
            raise HttpError("the answer came in one piece: its pace cannot be measured")
        return (self.tokens - 1) / (self.last - self.first)


def complete(client, path, model, prompt, tokens, timeout):
    """Have the engine complete a prompt by exactly `tokens` tokens within `timeout` seconds; gives a Streamed.

    Raises HttpError when the answer is refused, late, or is not whole: only an answer with its end, a finish reason
    and the tokens asked for is one.
    """
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "ignore_eos": True,  # both engines know it; the length must not depend on what is said
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    times, usage, reason = [], {}, None
    begin = time.monotonic()
    for moment, chunk in chunks(client, path, body, timeout):
        if chunk.get("choices"):
            times.append(moment - begin)
            reason = chunk["choices"][0].get("finish_reason") or reason
        usage = chunk.get("usage") or usage
    got = usage.get("completion_tokens")
    if not times or reason != "length" or got != tokens:
        known = "an unknown number" if got is None else got
        raise HttpError(
            f"POST {path}: the answer broke off: {known} of {tokens} tokens, finish reason {reason or 'none'}"
        )
    gaps = tuple(later - earlier for earlier, later in zip(times, times[1:]))
    return Streamed(times[0], times[-1], gaps, got, usage.get("prompt_tokens") or 0)
