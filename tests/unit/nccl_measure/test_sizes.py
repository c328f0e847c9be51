from __future__ import annotations

from typing import Any

import pytest

from servewright.nccl.measure import sizes


@pytest.mark.parametrize(
    ("config", "dtype", "row"),
    [
        ({"hidden_size": 7168, "torch_dtype": "bfloat16"}, None, 14336),
        ({"hidden_size": 7168, "dtype": "bfloat16"}, "auto", 14336),
        # A multimodal model: the language model's width counts, not the picture tower's.
        ({"hidden_size": 1152, "text_config": {"hidden_size": 7168, "dtype": "bfloat16"}}, None, 14336),
        # Weights in 4 bits: what is sent stays in 16.
        ({"hidden_size": 7168, "quantization_config": {"bits": 4}}, None, 14336),
        # Engines compute a float32 checkpoint in 16 bits unless told otherwise.
        ({"hidden_size": 4096, "torch_dtype": "float32"}, None, 8192),
        ({"hidden_size": 4096, "torch_dtype": "float32"}, "float32", 16384),
        ({"hidden_size": 4096, "torch_dtype": "bfloat16"}, "half", 8192),
    ],
)
def test_bytes_per_token(config: dict[str, Any], dtype: str | None, row: int) -> None:
    assert sizes.shape(config, dtype).row == row


@pytest.mark.parametrize(
    ("config", "dtype", "words"),
    [
        ({}, None, "no hidden_size"),
        ({"hidden_size": "7168"}, None, "no hidden_size"),
        ({"hidden_size": 7168, "torch_dtype": "int8"}, None, "'int8'"),
        ({"hidden_size": 7168}, "fp8", "'fp8' is not one of"),
    ],
)
def test_a_config_that_says_too_little(config: dict[str, Any], dtype: str | None, words: str) -> None:
    with pytest.raises(sizes.ConfigError, match=words):
        sizes.shape(config, dtype)


def test_one_message_per_batch_and_chunk_smallest_first() -> None:
    found = sizes.messages(sizes.Shape(7168, "bfloat16"), decode=(64, 1), prefill=(4096, 64))
    assert [(m.bytes, m.tokens, m.phase) for m in found] == [
        (14336, 1, "decode"),
        (917504, 64, "decode"),
        (58720256, 4096, "prefill"),
    ]


@pytest.mark.parametrize("tokens", [(0,), (-1,), ()])
def test_batches_that_are_none(tokens: tuple[int, ...]) -> None:
    with pytest.raises(sizes.ConfigError):
        sizes.messages(sizes.Shape(7168, "bfloat16"), decode=tokens, prefill=())
