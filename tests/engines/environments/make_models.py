"""Write the tiny models. Runs with an engine environment's Python: `python make_models.py FOLDER`.

Random weights of a fixed seed in the shapes of real architectures: what comes out is gibberish, but always the
same gibberish, loaded from real safetensors files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

_SPECIAL = ["<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>", "<|system|>"]
_TEXT = (
    "The quick brown fox jumps over the lazy dog. Hello, how are you today? I am fine, thank you. One plus one is two."
)
_CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_VOCABULARY = 512
_SHAPE = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "max_position_embeddings": 4096,
    "bos_token_id": _SPECIAL.index("<|bos|>"),
    "eos_token_id": _SPECIAL.index("<|eos|>"),
    # Far wider than a real model's: with it the best token wins clearly, so greedy output does not hang on the
    # rounding of bfloat16.
    "initializer_range": 0.2,
    "dtype": "bfloat16",
}


def _deepseek() -> PreTrainedConfig:
    """Multi-head latent attention as in DeepSeek-V3; vLLM's CPU kernel takes only the real ranks 512 and 64."""
    return DeepseekV3Config(
        **_SHAPE,
        num_key_value_heads=4,
        q_lora_rank=64,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_routed_experts=8,
        n_shared_experts=1,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        num_nextn_predict_layers=0,
        # What transformers takes for granted, vLLM reads from config.json.
        topk_method="noaux_tc",
        scoring_func="sigmoid",
    )


def _qwen3moe() -> PreTrainedConfig:
    return Qwen3MoeConfig(**_SHAPE, num_key_value_heads=2, head_dim=32, num_experts=8)


def _tokenizer() -> Tokenizer:
    """Byte-level BPE: any text has tokens, and the few merges make them longer than a byte."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [_TEXT],
        trainers.BpeTrainer(
            vocab_size=_VOCABULARY, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
        ),
    )
    return tokenizer


def _write(folder: Path, architecture: type[PreTrainedModel], config: PreTrainedConfig) -> None:
    torch.manual_seed(0)
    architecture(config).to(torch.bfloat16).save_pretrained(folder)
    _tokenizer().save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|eos|>",
        "pad_token": "<|eos|>",
        "model_max_length": config.max_position_embeddings,
        "clean_up_tokenization_spaces": False,
        "chat_template": _CHAT,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    for file in folder.iterdir():
        # safetensors writes 0600; the engines run as other users.
        file.chmod(0o644)


def main() -> None:
    target = Path(sys.argv[1])
    _write(target / "tiny-deepseek", DeepseekV3ForCausalLM, _deepseek())
    _write(target / "tiny-qwen3moe", Qwen3MoeForCausalLM, _qwen3moe())


if __name__ == "__main__":
    main()
