"""Does the model do what is declared, and does it fit? Estimates from its config.json and the sizes of its files."""

from __future__ import annotations

import os

from .. import arguments, safetensors
from .check import fatal, passed, warning
from .model import GIB, NO_WEIGHTS, declared_config, read_config

MIB = 1 << 20
# Part of a GPU's memory for weights and KV cache when none is declared: vLLM 0.32.0 (arg_utils.py). SGLang chooses
# by GPU; this is its usual result, and 0.98 one that occurs (0.5.23, srt/arg_groups/memory_hook.py).
USUAL_FRACTION = {"vllm": 0.9, "sglang": 0.88}
# Flags that say it, the newer name first.
FRACTION_FLAGS = ("--gpu-memory-utilization", "--device-memory-utilization", "--mem-fraction-static")
# Beginnings of flags that change the model's configuration in ways that are not followed here: another file, a part of
# a mapping, rope flags of older versions. The check command_line has the engine's own answer.
OTHER_CONFIG = ("--hf-config-path", "--hf-overrides.", "--config", "--model-config-parser", "--rope-")
# Beginnings of flags with which GPUs hold less than the weight files do: parts stay with the processor (SGLang 0.5.23,
# srt/arg_groups/fields/exec_.py; vLLM 0.32.0, config/offload.py). --cpu-offload-gb is reckoned with.
ELSEWHERE = ("--kt-", "--offload-", "--ple-offload-", "--cpu-offload-params")
# And those that make weights smaller while they are loaded, unless the files are quantised already: fp8, bitsandbytes
# and others of vLLM 0.32.0 and SGLang 0.5.23, torchao of SGLang 0.5.17.
QUANTISES = ("--quantization", "-q", "--torchao-config")
LONGER_ALLOWED = ("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")


def context(subject):
    """The declared context is not longer than what the model, and its draft, were made for."""
    release = subject.release
    wanted = release["model"]["context_length"]
    config = declared_config(release)
    if wanted is None or config is None:
        return []
    found = []
    longest = _longest(config)
    allowed = any(release["environment"].get(name, "").lower() in ("1", "true") for name in LONGER_ALLOWED)
    if longest and wanted > longest:
        message = f"model.context_length is {wanted}, the model's config.json allows {longest}"
        other = arguments.given(release, *OTHER_CONFIG)
        if other:
            found.append(warning(f"{message}; what {other} makes of it is not known here", "see command_line"))
        elif allowed:
            found.append(warning(message, "answers beyond that can be wrong"))
        else:
            found.append(fatal(message, f"declare at most {longest}"))
    draft = arguments.draft_model(release)
    short = _longest(read_config(draft) or {}) if draft else 0
    if short and wanted > short:
        found.append(
            warning(
                f"the draft model was made for {short} tokens, the context is {wanted}: longer prompts get slower",
                "measure it at the length of real prompts",
            )
        )
    return found


def _longest(config):
    """The longest context that any reading of config.json allows, or 0: a refusal must be beyond doubt.

    Engines do not multiply it where a kind of scaling says that it is in there already, and differ in which these are.
    """
    names = (
        "max_position_embeddings",
        "seq_length",
        "n_positions",
        "max_seq_len",
        "model_max_length",
        "max_sequence_length",
    )
    sizes = [config[name] for name in names if isinstance(config.get(name), int)]
    scalings = [config[name] for name in ("rope_scaling", "rope_parameters") if isinstance(config.get(name), dict)]
    # Some models have one for each kind of layer.
    scalings += [each for scaling in scalings for each in scaling.values() if isinstance(each, dict)]
    factors = [each["factor"] for each in scalings if isinstance(each.get("factor"), (int, float))]
    return int(max(sizes, default=0) * max([1, *factors]))


def memory(subject):
    """Weights and at least one full context fit into the claimed GPUs, by estimate."""
    release = subject.release
    sizes = release.get("parallelism")
    config = read_config(release["model"]["path"])
    if not release["gpus"] or not sizes or config is None or arguments.value(release, "--load-format") in NO_WEIGHTS:
        return []
    try:
        weights = _bytes(release["model"]["path"]) + _bytes(arguments.draft_model(release) or "")
        total = min(subject.gpus[index]["total_mib"] for index in release["gpus"]) * MIB
    except (KeyError, ValueError, TypeError, AttributeError, OSError):
        return []  # other checks name what is missing
    if not total or not weights:
        return []
    ranks = sizes["tensor"] * sizes["pipeline"]
    # vLLM spreads experts over the data parallel ranks, too. How much is experts is not known; nearly all is. SGLang
    # keeps them, and its data parallel attention, within the tensor parallel ranks.
    spread = sizes["data"] > 1 and arguments.has(release, "--enable-expert-parallel")
    per_gpu = weights / (ranks * sizes["data"] if spread else ranks)
    per_gpu -= (arguments.number(release, "--cpu-offload-gb") or 0) * GIB
    declared = arguments.number(release, *FRACTION_FLAGS)
    fraction = declared or USUAL_FRACTION[release["engine"]]
    room = total * fraction - per_gpu
    evidence = {
        "weights_per_gpu_gib": round(per_gpu / GIB, 1),
        "gpu_gib": round(total / GIB, 1),
        "kv_cache_gib": round(room / GIB, 1),
    }
    says = "{} {weights_per_gpu_gib} GiB of weights on each GPU of {gpu_gib} GiB".format(
        "at least" if spread else "about", **evidence
    )
    whole = _whole(release, config)
    if per_gpu > total:
        repair = "claim more GPUs, or a model with smaller weights"
        return [(fatal if whole else warning)(says, repair, **evidence)]
    if room <= 0:
        # vLLM does not look at the fraction where the KV cache has a size of its own.
        sure = (declared or release["engine"] == "vllm") and not arguments.has(release, "--kv-cache-memory-bytes")
        message = f"{says}: the fraction {fraction:g} of it leaves nothing for the KV cache"
        repair = "declare a larger fraction, more GPUs or smaller weights"
        return [(fatal if whole and sure else warning)(message, repair, **evidence)]
    tokens, wanted = _tokens(config, room, sizes, release), release["model"]["context_length"]
    if tokens is not None:
        evidence["kv_cache_tokens"] = tokens
        if wanted and tokens < wanted:
            message = f"{says} leave room for about {tokens} tokens, one context is {wanted}"
            repair = "declare a shorter context, a larger fraction or a smaller kv_cache_dtype"
            return [warning(message, repair, **evidence)]
    return [passed(f"{says}, {evidence['kv_cache_gib']} GiB for the KV cache", **evidence)]


def _whole(release, config):
    """False where GPUs may hold less than the weight files do, so that what these say refuses nothing."""
    kind = config.get("dtype") or config.get("torch_dtype")
    if kind == "float32" and arguments.value(release, "--dtype") not in ("float32", "float"):
        return False  # both engines halve it
    smaller = arguments.given(release, *QUANTISES) or arguments.value(release, "--load-format") == "bitsandbytes"
    quantised = "quantization_config" in config or "compression_config" in config
    return not arguments.given(release, *ELSEWHERE) and (quantised or not smaller)


def _bytes(folder):
    if not folder.startswith("/"):
        return 0
    return sum(os.path.getsize(os.path.join(folder, name)) for name in safetensors.shards(folder))


def _tokens(config, room, sizes, release):
    """Tokens of KV cache that fit, or None for an architecture whose size is not known here."""
    layers, kind = config.get("num_hidden_layers"), arguments.value(release, "--kv-cache-dtype") or ""
    if not isinstance(layers, int):
        return None
    size = 1 if kind.startswith("fp8") else 2
    if config.get("kv_lora_rank"):  # multi-head latent attention: one compressed vector, on every GPU
        values = config["kv_lora_rank"] + config.get("qk_rope_head_dim", 0)
    else:
        heads = config.get("num_key_value_heads") or config.get("num_attention_heads")
        width = config.get("head_dim")
        if not width and heads and config.get("hidden_size") and config.get("num_attention_heads"):
            width = config["hidden_size"] // config["num_attention_heads"]
        if not heads or not width:
            return None
        values = 2 * max(1, heads // sizes["tensor"]) * width
    stage = -(-layers // sizes["pipeline"])  # layers of the longest
    return int(room / (stage * values * size))
