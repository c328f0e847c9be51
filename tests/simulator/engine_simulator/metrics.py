"""Prometheus text with the metric names a deploy tool reads."""

from __future__ import annotations

from .generation import Counters
from .launch import Launch
from .misbehaviour import Misbehaviour

DRAFT_TOKENS = 3


def _render(rows: list[tuple[str, str, float]], labels: str) -> str:
    lines = []
    for name, kind, value in rows:
        lines.append(f"# TYPE {name} {kind}")
        lines.append(f"{name}{{{labels}}} {float(value)}")
    return "\n".join(lines) + "\n"


def accept_length(counters: Counters) -> float:
    """Tokens a step of all requests so far."""
    return counters.generated_tokens / counters.steps if counters.steps else 0.0


def sglang(launch: Launch, counters: Counters, kv_tokens: int) -> str:
    labels = f'engine_type="unified",model_name="{launch.names[0]}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    spec = bool(launch.speculation)
    rows = [
        ("sglang:max_total_num_tokens", "gauge", kv_tokens),
        ("sglang:context_len", "gauge", launch.context),
        ("sglang:num_running_reqs", "gauge", counters.running),
        ("sglang:num_queue_reqs", "gauge", counters.waiting),
        ("sglang:gen_throughput", "gauge", 0.0),
        ("sglang:cache_hit_rate", "gauge", 0.0),
        ("sglang:token_usage", "gauge", 0.0),
        ("sglang:spec_accept_length", "gauge", accept_length(counters) if spec else 0.0),
        ("sglang:spec_accept_rate", "gauge", (accept_length(counters) - 1) / DRAFT_TOKENS if spec else 0.0),
        ("sglang:is_cuda_graph", "gauge", float(launch.cuda_graphs)),
    ]
    text = _render(rows, labels)
    plain = f'model_name="{launch.names[0]}"'
    return text + _render(
        [
            ("sglang:prompt_tokens_total", "counter", counters.prompt_tokens),
            ("sglang:generation_tokens_total", "counter", counters.generated_tokens),
            *([("sglang:spec_verify_calls_total", "counter", counters.steps)] if spec else []),
            ("sglang:num_requests_total", "counter", sum(counters.finished.values())),
            ("sglang:time_to_first_token_seconds_count", "counter", counters.first_tokens),
            ("sglang:time_to_first_token_seconds_sum", "counter", counters.first_token_seconds),
        ],
        plain,
    )


def vllm(launch: Launch, counters: Counters, bad: Misbehaviour) -> str:
    labels = f'engine="0",model_name="{launch.names[0]}"'
    rows: list[tuple[str, str, float]] = [
        ("vllm:num_requests_running", "gauge", counters.running),
        ("vllm:num_requests_waiting", "gauge", counters.waiting),
        (f"vllm:{'gpu' if bad.info_endpoint == 'old' else 'kv'}_cache_usage_perc", "gauge", 0.0),
        ("vllm:num_preemptions_total", "counter", 0),
        ("vllm:prompt_tokens_total", "counter", counters.prompt_tokens),
        ("vllm:generation_tokens_total", "counter", counters.generated_tokens),
        ("vllm:time_to_first_token_seconds_count", "counter", counters.first_tokens),
        ("vllm:time_to_first_token_seconds_sum", "counter", counters.first_token_seconds),
    ]
    if launch.speculation:
        accepted = counters.generated_tokens - counters.steps
        rows += [
            ("vllm:spec_decode_num_drafts_total", "counter", int(counters.steps)),
            ("vllm:spec_decode_num_draft_tokens_total", "counter", int(counters.steps * DRAFT_TOKENS)),
            ("vllm:spec_decode_num_accepted_tokens_total", "counter", int(accepted)),
        ]
    text = _render(rows, labels)
    for position in range(DRAFT_TOKENS if launch.speculation else 0):
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        text += f'{name}{{{labels},position="{position}"}} {float(int(accepted / DRAFT_TOKENS))}\n'
    for reason in ("stop", "length", "abort"):
        text += f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="{launch.names[0]}"}} '
        text += f"{float(counters.finished.get(reason, 0))}\n"
    return text
