"""One streamed completion, timed on the monotonic clock, with the tokens that the engine counted."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import NamedTuple

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
    times, usage, reason, ended = [], {}, None, False
    begin = time.monotonic()
    for moment, text in _events(client, path, body, begin + timeout):
        if text == "[DONE]":
            ended = True
            break
        event = _parsed(path, text)
        if event.get("choices"):
            times.append(moment - begin)
            reason = event["choices"][0].get("finish_reason") or reason
        usage = event.get("usage") or usage
    got = usage.get("completion_tokens")
    if not ended or not times or reason != "length" or got != tokens:
        raise HttpError(
            "POST {}: the answer broke off: {} of {} tokens, finish reason {}, {}".format(
                path,
                "an unknown number" if got is None else got,
                tokens,
                reason or "none",
                "stream ended" if ended else "stream not ended",
            )
        )
    gaps = tuple(later - earlier for earlier, later in zip(times, times[1:]))
    return Streamed(times[0], times[-1], gaps, got, usage.get("prompt_tokens") or 0)


def _parsed(path, text):
    try:
        event = json.loads(text)
        if event.get("error"):
            raise HttpError(f"POST {path}: the stream reports {str(event['error'])[:200]}")
        return event
    except (ValueError, AttributeError):
        raise HttpError(f"POST {path}: an event of the stream is not JSON: {text[:80]!r}") from None


def _events(client, path, body, deadline):
    """(moment, data) of each server-sent event of the answer, as they come."""
    connection = http.client.HTTPConnection(client.host, client.port, timeout=max(0.001, deadline - time.monotonic()))
    try:
        connection.request("POST", path, json.dumps(body), {**client.headers, "Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            text = answer.read(200).decode("utf-8", "replace")
            raise HttpError(f"POST {path}: status {answer.status}: {text}", answer.status)
        rest = b""
        while True:
            data = answer.read1(1 << 16)
            moment = time.monotonic()
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    yield moment, line[5:].strip().decode("utf-8", "replace")
            if moment > deadline:
                raise socket.timeout
    except socket.timeout:
        raise HttpError(f"POST {path}: no whole answer in time") from None
    except (OSError, http.client.HTTPException) as error:
        raise HttpError(f"POST {path}: the answer broke off: {type(error).__name__}: {error}") from None
    finally:
        connection.close()
