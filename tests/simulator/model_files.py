"""Writes a model folder that looks like a small Kimi-K2.5: config, tokenizer, two tiny safetensors shards."""

from __future__ import annotations

import json
import pathlib
import struct
from typing import Any

CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "kimi_k2",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.827,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 262144,
    "vocab_size": 163840,
    "rms_norm_eps": 1e-05,
    "rope_theta": 50000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 163584,
    "eos_token_id": 163585,
    "torch_dtype": "bfloat16",
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group", "symmetric": True},
            }
        },
    },
}
TEMPLATE = (
    "{% for m in messages %}<|im_{{ m['role'] }}|>{{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_assistant|>{% endif %}"
)


def write_safetensors(path: pathlib.Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    """name -> (dtype, shape, bytes), in the layout of the safetensors format: length, JSON header, data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_model(folder: pathlib.Path) -> None:
    """Fill `folder`; the weights have the right names and far too small shapes."""
    folder.mkdir(parents=True, exist_ok=True)

    def dump(name: str, value: Any) -> None:
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")

    dump("config.json", CONFIG)
    dump("generation_config.json", {"bos_token_id": 163584, "eos_token_id": 163585, "max_length": 262144})
    dump(
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "[BOS]",
            "eos_token": "[EOS]",
            "model_max_length": 262144,
            "chat_template": TEMPLATE,
        },
    )
    alphabet = {chr(code): code - 33 for code in range(33, 127)}
    model = {"type": "BPE", "vocab": alphabet, "merges": []}
    dump("tokenizer.json", {"version": "1.0", "model": model, "added_tokens": []})
    shards = {
        "model-00001-of-00002.safetensors": ["model.embed_tokens.weight", "model.layers.0.self_attn.o_proj.weight"],
        "model-00002-of-00002.safetensors": ["model.norm.weight", "lm_head.weight"],
    }
    weight_map = {}
    for file, names in shards.items():
        write_safetensors(folder / file, {name: ("BF16", [2, 2], bytes(8)) for name in names})
        weight_map.update(dict.fromkeys(names, file))
    dump("model.safetensors.index.json", {"metadata": {"total_size": 8 * len(weight_map)}, "weight_map": weight_map})
