"""/v1/completions, /v1/chat/completions and /v1/models as both engines serve them.

The two differ in field names, ids, error bodies and whether they look at `model`; those differences are the
Dialect's, the rest is shared.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from typing import Any

from . import answers, generation, tokens
from .generation import BrokenOff, EngineGone, Generator, Job, Piece
from .launch import Launch
from .misbehaviour import Misbehaviour
from .web import Request, Stream

ENGINE_GONE = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class Refused(Exception):
    """The request is answered with an error: status, message, type, parameter."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.param = status, message, kind, param


class Dialect:
    """What one engine does its own way."""

    def __init__(self, launch: Launch, bad: Misbehaviour) -> None:
        self.launch = launch
        self.bad = bad

    @property
    def shown_names(self) -> list[str]:
        return ["some-other-model"] if self.bad.wrong_name else self.launch.names

    def error(self, refused: Refused) -> dict[str, Any]:
        raise NotImplementedError

    def request_id(self, chat: bool) -> str:
        raise NotImplementedError

    def check_model(self, body: dict[str, Any]) -> str:
        """The name to answer with; Refused for one the engine does not serve."""
        raise NotImplementedError

    def check_length(self, prompt_tokens: int, max_tokens: int | None) -> int:
        """Tokens that may be generated; Refused when it does not fit."""
        raise NotImplementedError

    def check_tools(self, body: dict[str, Any]) -> None:
        """Refused where the engine lacks the flags that tools need."""

    def choice_extra(self, stream: bool, chat: bool) -> dict[str, Any]:
        return {}

    def chunk_extra(self) -> dict[str, Any]:
        """Fields that a completion chunk has beside the choices."""
        return {}

    def usage(self, prompt_tokens: int, generated: int) -> dict[str, Any]:
        total = prompt_tokens + generated
        return {"prompt_tokens": prompt_tokens, "total_tokens": total, "completion_tokens": generated}

    def message(self, text: str | None, reasoning: str | None) -> dict[str, Any]:
        raise NotImplementedError

    reasoning_key = "reasoning_content"
    reports_death = False


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _has_word_of(tool: dict[str, Any], prompt: str) -> bool:
    words = re.findall(r"[a-z]{4,}", tool.get("name", "").lower() + " " + tool.get("description", "").lower())
    return any(word in prompt.lower() for word in words)


class Api:
    """The routes over one Dialect and one Generator."""

    def __init__(self, dialect: Dialect, generator: Generator) -> None:
        self.dialect = dialect
        self.generator = generator
        self.launch = dialect.launch
        self.bad = dialect.bad

    # -- requests ------------------------------------------------------------------------------------------

    def completions(self, request: Request) -> None:
        self._guarded(request, self._completions)

    def chat(self, request: Request) -> None:
        self._guarded(request, self._chat)

    def _guarded(self, request: Request, serve: Any) -> None:
        try:
            body = self._body(request)
            serve(request, body)
        except Refused as refused:
            request.json(refused.status, self.dialect.error(refused))
        except EngineGone:
            self._gone(request)
        except BrokenOff:
            request.drop()

    def _gone(self, request: Request) -> None:
        """vLLM answers 500, or ends a running stream with an error event and still a [DONE]; SGLang hangs up."""
        gone = Refused(500, ENGINE_GONE, "InternalServerError")
        if not self.dialect.reports_death:
            request.drop()
        elif request.answered is None:
            request.json(500, self.dialect.error(gone))
        else:
            request.answered.event(self.dialect.error(gone))
            request.answered.event("[DONE]")
            request.answered.end()

    def _body(self, request: Request) -> dict[str, Any]:
        kind = (request.headers.get("content-type") or "").split(";")[0].strip().lower()
        if kind != "application/json":
            raise Refused(400, "Unsupported Media Type: Only 'application/json' is allowed", "Bad Request")
        try:
            body = json.loads(request.body)
        except ValueError as error:
            raise Refused(400, f"1 validation error: JSON decode error: {error}", "Bad Request") from None
        if not isinstance(body, dict):
            raise Refused(400, "1 validation error: Input should be a valid dictionary", "Bad Request")
        return body

    def _limit(self, body: dict[str, Any], prompt_tokens: int, default: int | None) -> int:
        wanted = body.get("max_tokens", body.get("max_completion_tokens"))
        if wanted is not None and (not isinstance(wanted, int) or wanted < 1):
            raise Refused(400, f"max_tokens must be at least 1, got {wanted}.", "BadRequestError", "max_tokens")
        return self.dialect.check_length(prompt_tokens, wanted if wanted is not None else default)

    def _completions(self, request: Request, body: dict[str, Any]) -> None:
        if "prompt" not in body:
            raise Refused(400, "1 validation error: {'type': 'missing', 'loc': ('body', 'prompt'), "
                               "'msg': 'Field required'}", "Bad Request")  # fmt: skip
        model = self.dialect.check_model(body)
        prompt = body["prompt"]
        batch = isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list))
        jobs = [self._completion_job(body, one) for one in (prompt if batch else [prompt])]
        created, number = int(time.time()), self.dialect.request_id(False)
        head = {"id": number, "object": "text_completion", "created": created, "model": model}
        if body.get("stream"):
            self._stream_completion(request, body, head, jobs[0])
            return
        choices, generated = [], 0
        for index, job in enumerate(jobs):
            text, count, finish = self._whole(job)
            generated += count
            lead = _text_of(prompt) if body.get("echo") and not batch else ""
            choice = {"index": index, "text": lead + text, "logprobs": self._logprobs(body, job)}
            choice["finish_reason"] = finish
            choices.append({**choice, **self.dialect.choice_extra(False, False)})
        usage = self._full_usage(sum(job.prompt_tokens for job in jobs), generated)
        request.json(200, {**head, "choices": choices, "usage": usage})

    def _completion_job(self, body: dict[str, Any], prompt: Any) -> Job:
        count = tokens.count(prompt)
        limit = self._limit(body, count, 16)
        text = json.dumps(prompt) if isinstance(prompt, list) else str(prompt)
        found = None if isinstance(prompt, list) else answers.known(text)
        structured = answers.structured(text, body.get("response_format") or {})
        return generation.make_job(self.bad, text, count, limit, body, structured or _as_continuation(text, found))

    def _chat(self, request: Request, body: dict[str, Any]) -> None:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise Refused(400, "1 validation error: {'type': 'missing', 'loc': ('body', 'messages'), "
                               "'msg': 'Field required'}", "Bad Request")  # fmt: skip
        model = self.dialect.check_model(body)
        self.dialect.check_tools(body)
        whole = "\n".join(f"{m.get('role')}: {_text_of(m.get('content'))}" for m in messages if isinstance(m, dict))
        asked = next((_text_of(m.get("content")) for m in reversed(messages) if m.get("role") == "user"), whole)
        count = tokens.count(whole) + 4 * len(messages)
        limit = self._limit(body, count, None)
        created, number = int(time.time()), self.dialect.request_id(True)
        head = {"id": number, "object": "chat.completion", "created": created, "model": model}
        call = self._tool_call(body, asked, messages)
        answer = answers.structured(asked, body.get("response_format") or {})
        if answer is None:
            answer = answers.known(asked) or answers.known(whole)
        if call is not None:
            answer = call["function"]["arguments"]
        reasoning = "The question is simple. " if self._thinks(body) and call is None else None
        if reasoning and answer is not None and not body.get("response_format"):
            answer = reasoning + answer
        job = generation.make_job(self.bad, asked, count, limit, body, answer)
        if body.get("stream"):
            self._stream_chat(request, body, head, job, call, reasoning)
            return
        text, generated, finish = self._whole(job)
        message = self.dialect.message(*_split_reasoning(text, reasoning))
        if call is not None and finish == "stop":
            message = {**self.dialect.message(None, None), "tool_calls": [call]}
            finish = "tool_calls"
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        choice.update(self.dialect.choice_extra(False, True))
        request.json(200, {**head, "choices": [choice], "usage": self._full_usage(job.prompt_tokens, generated)})

    def _thinks(self, body: dict[str, Any]) -> bool:
        template = body.get("chat_template_kwargs") or {}
        wanted = template.get("enable_thinking", template.get("thinking", True))
        return bool(self.launch.reasoning_parser) and bool(wanted)

    def _tool_call(self, body: dict[str, Any], asked: str, messages: list[Any]) -> dict[str, Any] | None:
        tools = [tool.get("function", {}) for tool in body.get("tools") or []]
        choice = body.get("tool_choice", "auto" if tools else "none")
        if not tools or choice == "none" or messages[-1].get("role") == "tool":
            return None
        if isinstance(choice, dict):
            tools = [tool for tool in tools if tool.get("name") == choice.get("function", {}).get("name")]
        elif choice == "auto":
            tools = [tool for tool in tools if _has_word_of(tool, asked)] if self.launch.tool_parser else []
        if not tools:
            return None
        arguments = answers.tool_arguments(asked, tools[0].get("parameters") or {})
        function = {"name": tools[0].get("name"), "arguments": json.dumps(arguments)}
        return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "index": 0, "function": function}

    # -- answers -------------------------------------------------------------------------------------------

    def _whole(self, job: Job) -> Piece:
        """The whole answer as one piece."""
        pieces = list(self.generator.run(job))
        return Piece("".join(piece.text for piece in pieces), pieces[-1].tokens, pieces[-1].finish_reason)

    def _full_usage(self, prompt_tokens: int, generated: int) -> dict[str, Any]:
        details = {"prompt_tokens_details": None, "completion_tokens_details": None}
        return {**self.dialect.usage(prompt_tokens, generated), **details}

    def _logprobs(self, body: dict[str, Any], job: Job) -> dict[str, Any] | None:
        if body.get("logprobs") is None:
            return None
        return {
            "text_offset": [len("".join(job.pieces[:k])) for k in range(len(job.pieces))],
            "token_logprobs": [-0.25] * len(job.pieces),
            "tokens": job.pieces,
            "top_logprobs": [{piece: -0.25} for piece in job.pieces],
        }

    def _stream_completion(self, request: Request, body: dict[str, Any], head: dict[str, Any], job: Job) -> None:
        extra = self.dialect.choice_extra(True, False)
        stream: Stream | None = None
        done = 0
        for piece in self.generator.run(job):
            stream = stream or request.stream()  # a refusal or a hang comes before the headers
            if self.bad.short_stream and piece.tokens > len(job.pieces) // 2:
                break
            done = piece.tokens
            choice = {"index": 0, "text": piece.text, "logprobs": None, "finish_reason": piece.finish_reason, **extra}
            stream.event({**head, "choices": [choice], **self.dialect.chunk_extra()})
        self._end_stream(stream, body, head, job, done)

    def _stream_chat(
        self,
        request: Request,
        body: dict[str, Any],
        head: dict[str, Any],
        job: Job,
        call: dict[str, Any] | None,
        reasoning: str | None,
    ) -> None:
        head = {**head, "object": "chat.completion.chunk"}
        extra = self.dialect.choice_extra(True, True)

        def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
            return {
                **head,
                "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **extra}],
            }

        stream: Stream | None = None
        done, thought = 0, 0
        for piece in self.generator.run(job):
            done = piece.tokens
            opened = stream is not None
            if stream is None:
                stream = request.stream()
                stream.event(chunk({"role": "assistant", "content": ""}))
            if piece.text:
                thought += self._chat_piece(stream, chunk, piece.text, call, opened, reasoning, thought)
            if piece.finish_reason:
                called = call is not None and piece.finish_reason == "stop"
                stream.event(chunk({}, "tool_calls" if called else piece.finish_reason))
        self._end_stream(stream, body, head, job, done)

    def _end_stream(
        self, stream: Stream | None, body: dict[str, Any], head: dict[str, Any], job: Job, done: int
    ) -> None:
        assert stream is not None, "every answer has at least one piece"
        if (body.get("stream_options") or {}).get("include_usage"):
            stream.event({**head, "choices": [], "usage": self.dialect.usage(job.prompt_tokens, done)})
        stream.event("[DONE]")
        stream.end()

    def _chat_piece(
        self, stream: Any, chunk: Any, text: str, call: dict[str, Any] | None, opened: bool,
        reasoning: str | None, thought: int,
    ) -> int:  # fmt: skip
        """Send one piece of a chat answer; returns how many characters of it were reasoning."""
        if call is not None:
            part: dict[str, Any] = {"index": 0, "function": {"arguments": text}}
            if not opened:
                part = {**call, "function": {"name": call["function"]["name"], "arguments": text}}
            stream.event(chunk({"tool_calls": [part]}))
            return 0
        thinking = text[: max(0, len(reasoning or "") - thought)]
        if thinking:
            stream.event(chunk({self.dialect.reasoning_key: thinking}))
        if text[len(thinking) :]:
            stream.event(chunk({"content": text[len(thinking) :]}))
        return len(thinking)


def _split_reasoning(text: str, reasoning: str | None) -> tuple[str | None, str | None]:
    if not reasoning:
        return text, None
    size = len(reasoning)
    return text[size:] or None, text[:size]


def _as_continuation(prompt: str, found: str | None) -> str | None:
    """A completion goes on where the prompt stopped: "2+2=" -> "4", "The capital of France is" -> " Paris."."""
    if found is None or prompt.endswith(("=", " ", "\n")):
        return found
    return " " + found + ("." if prompt.endswith(" is") else "")
