"""vLLM's HTTP surface."""

from __future__ import annotations

import json
import os
import secrets
import time
from typing import Any

from . import metrics, tokens
from .generation import Generator
from .launch import Launch
from .misbehaviour import Misbehaviour
from .openai_api import Api, Dialect, Refused
from .web import Request, Server

GUARDED = ("/v1", "/v2", "/inference", "/cohere")


class VllmDialect(Dialect):
    reasoning_key = "reasoning"
    reports_death = True

    def error(self, refused: Refused) -> dict[str, Any]:
        body = {"message": refused.message, "type": refused.kind, "param": refused.param, "code": refused.status}
        return {"error": body}

    def request_id(self, chat: bool) -> str:
        return ("chatcmpl-" if chat else "cmpl-") + secrets.token_hex(8)

    def check_model(self, body: dict[str, Any]) -> str:
        asked = body.get("model") or self.shown_names[0]
        if asked not in self.launch.names and not self.bad.any_model and asked not in self.shown_names:
            aliases = ", ".join(self.shown_names)
            message = f"The model `{asked}` does not exist. Valid aliases: {aliases}."
            raise Refused(404, message, "NotFoundError", "model")
        return str(asked)

    def check_length(self, prompt_tokens: int, max_tokens: int | None) -> int:
        context = self.launch.context
        if prompt_tokens >= context and not self.bad.any_length:
            raise Refused(
                400,
                f"This model's maximum context length is {context} tokens. However, your prompt contains "
                f"{prompt_tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce "
                f"the length of the input prompt. (parameter=input_tokens, value={prompt_tokens})",
                param="input_tokens",
            )
        if max_tokens is not None and prompt_tokens + max_tokens > context and not self.bad.any_length:
            raise Refused(
                400,
                f"'max_tokens' or 'max_completion_tokens' is too large: {max_tokens}. This model's maximum context "
                f"length is {context} tokens and your request has {prompt_tokens} input tokens ({max_tokens} > "
                f"{context} - {prompt_tokens}). (parameter=max_tokens, value={max_tokens})",
                param="max_tokens",
            )
        return max_tokens if max_tokens is not None else context - prompt_tokens

    def check_tools(self, body: dict[str, Any]) -> None:
        if body.get("tools") and body.get("tool_choice", "auto") == "auto" and not self.launch.tool_parser:
            message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            raise Refused(400, message)

    def choice_extra(self, stream: bool, chat: bool) -> dict[str, Any]:
        return {"stop_reason": None, "token_ids": None}

    def message(self, text: str | None, reasoning: str | None) -> dict[str, Any]:
        return {"role": "assistant", "content": text, "refusal": None, "function_call": None, "reasoning": reasoning}


class VllmApi:
    """The routes of an API server around the shared OpenAI part."""

    def __init__(self, launch: Launch, bad: Misbehaviour, generator: Generator) -> None:
        self.launch, self.bad, self.generator = launch, bad, generator
        self.dialect = VllmDialect(launch, bad)
        self.openai = Api(self.dialect, generator)
        self.ready_since = time.monotonic()

    def install(self, server: Server) -> None:
        routes: dict[str, dict[str, Any]] = {
            "/health": {"GET": self.health},
            "/ping": {"GET": self.health, "POST": self.health},
            "/version": {"GET": lambda r: r.json(200, {"version": self.launch.version})},
            "/load": {"GET": lambda r: r.json(200, {"server_load": self.generator.counters.running})},
            "/metrics": {"GET": self.metrics},
            "/v1/models": {"GET": self.models},
            "/v1/completions": {"POST": self.openai.completions},
            "/v1/chat/completions": {"POST": self.openai.chat},
            "/tokenize": {"POST": self.tokenize},
        }
        if self.launch.dev_mode:
            routes["/server_info"] = {"GET": self.server_info}
            routes["/reset_prefix_cache"] = {"POST": lambda r: r.reply(200)}
        if self.bad.info_endpoint == "none":
            for path in ("/version", "/load", "/metrics"):
                del routes[path]
        server.routes = routes
        server.guard = self.guard

    def guard(self, request: Request) -> bool:
        if self.bad.busy(time.monotonic() - self.ready_since):
            request.json(503, {"error": {"message": "Service Unavailable", "type": "ServiceUnavailable", "code": 503}})
            return True
        if not self.launch.api_keys or not request.path.startswith(GUARDED) or request.method == "OPTIONS":
            return False
        scheme, _, token = (request.headers.get("authorization") or "").partition(" ")
        if scheme.lower() == "bearer" and token in self.launch.api_keys:
            return False
        request.json(401, {"error": "Unauthorized"})
        return True

    def health(self, request: Request) -> None:
        """200 with a frozen engine too: the real one looks at an error flag only."""
        request.reply(503 if self.generator.link.dead.is_set() else 200)

    def metrics(self, request: Request) -> None:
        text = metrics.vllm(self.launch, self.generator.counters, self.bad)
        request.reply(200, text.encode(), "text/plain; version=1.0.0; charset=utf-8")

    def models(self, request: Request) -> None:
        now = int(time.time())
        permission = {"id": f"modelperm-{secrets.token_hex(8)}", "object": "model_permission", "created": now}
        cards = [
            {
                "id": name, "object": "model", "created": now, "owned_by": "vllm", "root": self.launch.model_path,
                "parent": None, "max_model_len": self.launch.context,
                "permission": [permission],
            }
            for name in self.dialect.shown_names
        ]  # fmt: skip
        request.json(200, {"object": "list", "data": cards})

    def tokenize(self, request: Request) -> None:
        body = json.loads(request.body or b"{}")
        text = body.get("prompt") or "".join(str(m.get("content")) for m in body.get("messages", []))
        ids = tokens.ids(text)
        reply = {"count": len(ids), "max_model_len": self.launch.context, "tokens": ids, "token_strs": None}
        request.json(200, reply)

    def server_info(self, request: Request) -> None:
        args = self.launch.args
        config = {
            "model_config": {
                "model": self.launch.model_path,
                "max_model_len": self.launch.context,
                "served_model_name": self.launch.names,
                "dtype": args.dtype,
                "quantization": args.quantization,
                "seed": args.seed,
            },
            "parallel_config": {
                "tensor_parallel_size": self.launch.tensor_parallel,
                "pipeline_parallel_size": args.pipeline_parallel_size,
                "data_parallel_size": args.data_parallel_size,
                "enable_expert_parallel": bool(args.enable_expert_parallel),
                "disable_custom_all_reduce": bool(args.disable_custom_all_reduce),
            },
            "scheduler_config": {
                "max_num_seqs": self.launch.max_running,
                "max_num_batched_tokens": args.max_num_batched_tokens or 8192,
            },
            "cache_config": {
                "gpu_memory_utilization": args.gpu_memory_utilization,
                "cache_dtype": args.kv_cache_dtype,
                "enable_prefix_caching": args.enable_prefix_caching is not False,
            },
            "attention_config": {"backend": args.attention_backend},  # only what was asked, as in the real one
            "speculative_config": _speculation(args),
        }
        as_json = "config_format=json" in request.query
        variables = {k: v for k, v in os.environ.items() if k.startswith("VLLM_") and "KEY" not in k}
        info = {"vllm_config": config if as_json else repr(config), "vllm_env": variables, "system_env": {}}
        request.json(200, info)


def _speculation(args: Any) -> Any:
    return json.loads(args.speculative_config) if isinstance(args.speculative_config, str) else None
