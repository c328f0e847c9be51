"""Message sizes that a model's tensor parallel group sends, from its config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["decode", "prefill"]

DECODE_TOKENS = (1, 2, 4, 8, 16, 32, 64)
"""One token per running request."""
PREFILL_TOKENS = (128, 256, 512, 1024, 2048, 4096, 8192)
"""Short prompts, and the chunks that engines cut long ones into."""

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
# Both engines compute in 16 bits unless told otherwise, also where a checkpoint says float32.
_COMPUTED_IN = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float16"}


class ConfigError(ValueError):
    """config.json lacks what the sizes follow from."""


@dataclass(frozen=True, order=True)
class Message:
    """One all-reduce: `tokens` rows of the hidden size."""

    bytes: int
    tokens: int
    phase: Phase


@dataclass(frozen=True)
class Shape:
    """What of a model decides its messages."""

    hidden_size: int
    dtype: str

    @property
    def row(self) -> int:
        """Bytes of one token's activations."""
        return self.hidden_size * _BYTES[self.dtype]


def shape(config: Mapping[str, Any], dtype: str | None = None) -> Shape:
    """Hidden size and activation type of a config.json; dtype is the engine's --dtype, if it has one.

    Weights may be quantised to anything: activations, and so the messages, stay in 16 or 32 bits.
    A multimodal model keeps the language model's values in `text_config`.
    Raises ConfigError.
    """
    inner = config.get("text_config")
    text: Mapping[str, Any] = inner if isinstance(inner, Mapping) else config
    hidden = text.get("hidden_size", config.get("hidden_size"))
    if not isinstance(hidden, int) or isinstance(hidden, bool) or hidden < 1:
        raise ConfigError("config.json has no hidden_size, neither at the top nor in text_config")
    if dtype in (None, "auto"):
        named = next(
            (c[key] for c in (text, config) for key in ("dtype", "torch_dtype") if c.get(key)), "bfloat16"
        )
        kept = _COMPUTED_IN.get(str(named).removeprefix("torch."))
        if kept is None:
            raise ConfigError(f"config.json has dtype {named!r}; declare one of {', '.join(_BYTES)}")
        return Shape(hidden, kept)
    aliases = {"half": "float16", "float": "float32"}
    wanted = aliases.get(str(dtype), str(dtype))
    if wanted not in _BYTES:
        raise ConfigError(f"dtype {dtype!r} is not one of {', '.join([*_BYTES, *aliases, 'auto'])}")
    return Shape(hidden, wanted)


def messages(
    model: Shape,
    decode: Sequence[int] = DECODE_TOKENS,
    prefill: Sequence[int] = PREFILL_TOKENS,
) -> tuple[Message, ...]:
    """By size, smallest first. Where both phases have a number of tokens, it counts as decode."""
    found: dict[int, Message] = {}
    counts: tuple[tuple[Phase, Sequence[int]], ...] = (("decode", decode), ("prefill", prefill))
    for phase, tokens in counts:
        for count in tokens:
            if count < 1:
                raise ConfigError(f"{phase} of {count} tokens; 1 is the least")
            found.setdefault(count, Message(count * model.row, count, phase))
    if not found:
        raise ConfigError("no batch and no chunk sizes, so nothing to measure")
    return tuple(sorted(found.values()))
