"""SGLang's HTTP surface."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from . import answers, generation, logs, metrics, tokens
from .generation import BrokenOff, EngineGone, Generator
from .launch import Launch
from .misbehaviour import Misbehaviour
from .openai_api import Api, Dialect, Refused
from .web import Request, Server

UNGUARDED = ("/health", "/ready", "/metrics")
HEALTH_SECONDS = 20.0  # SGLANG_HEALTH_CHECK_TIMEOUT


class SglangDialect(Dialect):
    def error(self, refused: Refused) -> dict[str, Any]:
        fields = {"message": refused.message, "type": refused.kind, "param": refused.param, "code": refused.status}
        return {"object": "error", **fields}

    def request_id(self, chat: bool) -> str:
        return uuid.uuid4().hex

    def check_model(self, body: dict[str, Any]) -> str:
        """SGLang answers to any name and repeats it (seen with 0.5.23)."""
        return str(body.get("model") or "default")

    def check_length(self, prompt_tokens: int, max_tokens: int | None) -> int:
        context = self.launch.context
        if prompt_tokens >= context and not self.bad.any_length:
            raise Refused(
                400,
                f"The input ({prompt_tokens} tokens) is longer than the model's context length ({context} tokens).",
            )
        if max_tokens is not None and prompt_tokens + max_tokens > context and not self.bad.any_length:
            raise Refused(
                400,
                f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested "
                f"a total of {prompt_tokens + max_tokens} tokens: {prompt_tokens} tokens from the input messages and "
                f"{max_tokens} tokens for the completion. Please reduce the number of tokens in the input messages or "
                "the completion to fit within the limit.",
            )
        return max_tokens if max_tokens is not None else context - prompt_tokens

    def choice_extra(self, stream: bool, chat: bool) -> dict[str, Any]:
        return {"matched_stop": None}

    def chunk_extra(self) -> dict[str, Any]:
        return {"usage": None}

    def usage(self, prompt_tokens: int, generated: int) -> dict[str, Any]:
        return {**super().usage(prompt_tokens, generated), "reasoning_tokens": 0}

    def message(self, text: str | None, reasoning: str | None) -> dict[str, Any]:
        return {"role": "assistant", "content": text, "reasoning_content": reasoning}


class SglangApi:
    """The routes of the HTTP server; `status` is Starting until the warm-up request has been answered."""

    def __init__(self, launch: Launch, bad: Misbehaviour, generator: Generator, kv_tokens: int) -> None:
        self.launch, self.bad, self.generator, self.kv_tokens = launch, bad, generator, kv_tokens
        self.dialect = SglangDialect(launch, bad)
        self.openai = Api(self.dialect, generator)
        self.up = False
        self.healthy = True
        self.exiting = False
        self.ready_since = time.monotonic()

    def install(self, server: Server) -> None:
        both = {"GET": self.flush_cache, "POST": self.flush_cache}
        routes: dict[str, dict[str, Any]] = {
            "/health": {"GET": self.health},
            "/health_generate": {"GET": self.health},
            "/ready": {"GET": lambda r: r.reply(200 if self.up and self.healthy and not self.exiting else 503)},
            "/ping": {"GET": lambda r: r.reply(200 if self.up and self.healthy else 503)},
            "/v1/models": {"GET": self.models},
            "/model_info": {"GET": self.model_info},
            "/get_model_info": {"GET": self.model_info},
            "/server_info": {"GET": self.server_info},
            "/get_server_info": {"GET": self.server_info},
            "/v1/loads": {"GET": self.loads},
            "/flush_cache": both,
            "/generate": {"POST": self.generate, "PUT": self.generate},
            "/v1/completions": {"POST": self.openai.completions},
            "/v1/chat/completions": {"POST": self.openai.chat},
            "/tokenize": {"POST": self.tokenize},
            "/v1/tokenize": {"POST": self.tokenize},
        }
        if self.launch.args.enable_metrics:
            routes["/metrics"] = {"GET": self.metrics}
        old, new = ("/get_server_info", "/get_model_info"), ("/server_info", "/model_info")
        for path in {"old": new, "new": old, "none": old + new}.get(self.bad.info_endpoint, ()):
            del routes[path]
        if self.bad.health_generate == "missing":
            del routes["/health_generate"]
        elif self.bad.health_generate == "always":
            routes["/health_generate"] = {"GET": lambda r: r.reply(200)}
        for name in self.dialect.shown_names:
            routes[f"/v1/models/{name}"] = {"GET": lambda r, name=name: r.json(200, self.card(name))}
        server.routes = routes
        server.guard = self.guard

    def guard(self, request: Request) -> bool:
        if self.up and self.bad.busy(time.monotonic() - self.ready_since):
            request.reply(503)
            return True
        if not self.launch.api_keys or request.path.startswith(UNGUARDED) or request.method == "OPTIONS":
            return False
        scheme, _, token = (request.headers.get("authorization") or "").partition(" ")
        if scheme.lower() == "bearer" and token == self.launch.api_keys[0]:
            return False
        request.json(401, {"error": "Unauthorized"})
        return True

    def health(self, request: Request) -> None:
        """One generated token, as the real endpoint asks for; 503 when it does not come in time."""
        if not self.up or self.exiting:
            request.reply(503)
            return
        time.sleep(min(1.0, self.bad.life_scale))  # the real one looks for the token once a second
        limit = HEALTH_SECONDS * self.bad.life_scale
        self.healthy = self.generator.link.confirm(limit)
        if not self.healthy:
            logs.sglang(
                f"Health check failed. Server couldn't get a response from detokenizer for last {limit:.0f} seconds."
            )
        request.reply(200 if self.healthy else 503)

    def card(self, name: str) -> dict[str, Any]:
        return {
            "id": name, "object": "model", "created": int(time.time()), "owned_by": "sglang", "root": name,
            "parent": None, "max_model_len": self.launch.context,
        }  # fmt: skip

    def models(self, request: Request) -> None:
        request.json(200, {"object": "list", "data": [self.card(name) for name in self.dialect.shown_names]})

    def model_info(self, request: Request) -> None:
        if request.path.startswith("/get_"):
            self._deprecated(request.path)
        args = self.launch.args
        request.json(
            200,
            {
                "model_path": self.launch.model_path,
                "served_model_name": self.dialect.shown_names[0],
                "tokenizer_path": args.tokenizer_path or self.launch.model_path,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "load_format": args.load_format,
                "reasoning_parser": args.reasoning_parser,
                "tool_call_parser": args.tool_call_parser,
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "model_type": self.launch.config.get("model_type"),
                "architectures": self.launch.config.get("architectures"),
            },
        )

    def _deprecated(self, path: str) -> None:
        logs.sglang(
            f"Endpoint '{path}' is deprecated and will be removed in a future version. "
            f"Please use '{path.replace('/get_', '/')}' instead."
        )

    def server_info(self, request: Request) -> None:
        if request.path.startswith("/get_"):
            self._deprecated(request.path)
        if not self.generator.link.confirm():  # asks the scheduler: hangs when that is frozen
            request.reply(500)
            return
        args = {k: v for k, v in vars(self.launch.args).items() if not k.startswith("_")}
        args["attention_backend"] = self.launch.attention_backend
        args["tokenizer_path"] = args.get("tokenizer_path") or self.launch.model_path
        args["served_model_name"] = self.dialect.shown_names[0]
        state: dict[str, Any] = {
            **args,
            "effective_max_running_requests_per_dp": self.launch.max_running,
            "last_gen_throughput": generation.TOKENS_PER_SECOND * self.bad.speed,
            "memory_usage": {"weight": 70.1, "kvcache": 12.4, "token_capacity": self.kv_tokens, "graph": {}},
        }
        if self.launch.speculation:
            state["avg_spec_accept_length"] = metrics.accept_length(self.generator.counters)
        states: Any = [state] * max(1, int(self.launch.args.dp_size))
        states = {"empty": [], "null": [None, *states], "missing": None}.get(self.bad.internal_states, states)
        request.json(
            200,
            {
                **args,
                "launch_command": getattr(self.launch.args, "_launch_command", ""),
                "status": "ready",
                "max_total_num_tokens": self.kv_tokens,
                "max_req_input_len": self.launch.context - 6,
                "startup_time": {},
                "internal_states": states,
                "version": self.launch.version,
                "frontend": "python",
            },
        )

    def loads(self, request: Request) -> None:
        load = {
            "timestamp": time.time(), "dp_rank": 0, "num_running_reqs": self.generator.counters.running,
            "num_waiting_reqs": self.generator.counters.waiting,
            "num_used_tokens": 0, "max_total_num_tokens": self.kv_tokens,
            "max_running_requests": self.launch.max_running, "token_usage": 0.0, "gen_throughput": 0.0,
        }  # fmt: skip
        request.json(200, {"version": self.launch.version, "loads": [load]})

    def flush_cache(self, request: Request) -> None:
        text = (
            "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, "
            "the operation will not be performed.)\n"
        )
        logs.sglang("Cache flushed successfully!")
        request.reply(200, text.encode(), "")

    def metrics(self, request: Request) -> None:
        text = metrics.sglang(self.launch, self.generator.counters, self.kv_tokens)
        request.reply(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def tokenize(self, request: Request) -> None:
        ids = tokens.ids(str(json.loads(request.body or b"{}").get("prompt", "")))
        request.json(200, {"tokens": ids, "count": len(ids), "max_model_len": self.launch.context})

    def generate(self, request: Request) -> None:
        """The native endpoint: text or input_ids, sampling_params, optional stream of growing texts."""
        body = json.loads(request.body or b"{}")
        prompt = body.get("text") if body.get("text") is not None else body.get("input_ids")
        if prompt is None:
            request.json(400, {"error": {"message": "Either text, input_ids or input_embeds should be provided."}})
            return
        options = dict(body.get("sampling_params") or {})
        count = tokens.count(prompt)
        try:
            limit = self.dialect.check_length(count, int(options.get("max_new_tokens", 128)))
        except Refused as refused:
            request.json(400, {"error": {"message": refused.message}})
            return
        text = prompt if isinstance(prompt, str) else json.dumps(prompt)
        found = answers.known(text) if isinstance(prompt, str) else None
        job = generation.make_job(self.bad, text, count, limit, options, found and " " + found)
        number, begin = uuid.uuid4().hex, time.time()

        def reply(said: str, piece: generation.Piece) -> dict[str, Any]:
            finish = {"type": piece.finish_reason, "length": piece.tokens} if piece.finish_reason else None
            meta = {
                "id": number, "finish_reason": finish, "prompt_tokens": count, "weight_version": "default",
                "completion_tokens": piece.tokens, "cached_tokens": 0, "e2e_latency": time.time() - begin,
            }  # fmt: skip
            return {"text": said, "output_ids": tokens.ids(said), "meta_info": meta}

        try:
            said = ""
            stream = request.stream() if body.get("stream") else None
            for piece in self.generator.run(job):
                said += piece.text
                if stream is not None:
                    stream.event(reply(said, piece))
                elif piece.finish_reason:
                    request.json(200, reply(said, piece))
            if stream is not None:
                stream.event("[DONE]")
                stream.end()
        except (EngineGone, BrokenOff):
            request.drop()
