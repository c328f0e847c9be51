"""One request to the engine's OpenAI routes, and its whole answer: text, why it ended, tokens counted by the server.

Every request is greedy and says so in full: an engine takes what is left out from the model's generation_config.json.
"""

from __future__ import annotations

import json

from .http import HttpError

GREEDY = {"temperature": 0, "top_p": 1, "top_k": 1, "seed": 0}
_WHOLE = ("stop", "length", "tool_calls")  # any other reason to end (abort, error) means that text is missing


class Answer:
    """`text`, `finish` (the finish reason), `tokens` and `prompt_tokens` (the server's count; None: not told), `calls`
    (tool calls as the engine gives them)."""

    def __init__(self, text, finish, usage, calls=()):
        self.text = text
        self.finish = finish
        self.tokens = usage.get("completion_tokens")
        self.prompt_tokens = usage.get("prompt_tokens")
        self.calls = list(calls)


def complete(release, http, prompt, max_tokens, timeout, **options):
    """The answer to a text (or to a list of token ids). Raises HttpError when it is missing or broke off."""
    body = {"model": release["model"]["served_name"], "prompt": prompt, "max_tokens": max_tokens, "stream": False}
    found = http.json("POST", release["endpoints"]["completions"][0], {**body, **GREEDY, **options}, timeout=timeout)
    choice = _choice(found)
    if not isinstance(choice.get("text"), str):
        raise HttpError(f"the completion has no text: {str(found)[:200]}")
    return _checked(Answer(choice["text"], choice.get("finish_reason"), found.get("usage") or {}))


def chat(release, http, prompt, max_tokens, timeout, **options):
    """The answer to one user message, through the model's chat template. Raises HttpError like complete()."""
    body = {
        "model": release["model"]["served_name"],
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "stream": False,
    }
    found = http.json("POST", release["endpoints"]["chat"][0], {**body, **GREEDY, **options}, timeout=timeout)
    choice = _choice(found)
    message = choice.get("message") or {}
    text, calls = message.get("content") or "", message.get("tool_calls") or []
    return _checked(Answer(text, choice.get("finish_reason"), found.get("usage") or {}, calls))


def stream(release, http, prompt, max_tokens, timeout, **options):
    """The same as complete(), as a stream of events. [DONE] alone proves nothing: vLLM sends it after an error, too."""
    body = {
        "model": release["model"]["served_name"],
        "prompt": prompt,
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    path = release["endpoints"]["completions"][0]
    text, finish, usage = "", None, {}
    for _moment, chunk in chunks(http, path, {**body, **GREEDY, **options}, timeout):
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or []:
            text += choice.get("text") or ""
            finish = choice.get("finish_reason") or finish
    return _checked(Answer(text, finish, usage))


def chunks(http, path, body, timeout):
    """The pieces of a streamed answer as they come: (moment, JSON). [DONE] is its end.

    Raises HttpError when it reports an error or has no end.
    """
    for moment, event in http.events("POST", path, body, timeout=timeout):
        if event == "[DONE]":
            return
        try:
            chunk = json.loads(event)
            fault = chunk.get("error")
        except (ValueError, AttributeError):
            raise HttpError(f"POST {path}: an event of the stream is not JSON: {event[:200]}") from None
        if fault:
            raise HttpError(f"POST {path}: the stream ended with an error: {str(fault)[:200]}")
        yield moment, chunk
    raise HttpError(f"POST {path}: the answer broke off: its stream has no end")


def _choice(found):
    choices = found.get("choices") if isinstance(found, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise HttpError(f"the answer has no choice: {str(found)[:200]}")
    return choices[0]


def _checked(answer):
    if answer.finish not in _WHOLE:
        raise HttpError(f"the answer broke off: finish reason is {answer.finish!r}")
    return answer
