"""Which attention backend runs which model on which GPU, by engine and version.

Read in the engines' sources and in reports. A version that no row names is only warned about: the gates decide there.
"""

from __future__ import annotations

import re

REFUSE, WARN = "refuse", "warn"
DENSE, SPARSE = "mla", "sparse_mla"  # kinds of model; other attention is None


class Rule:
    """A combination that does not work.

    `backends` (lower case; "" is the engine's own choice), `kinds` of model, `majors` of compute capability that it
    fails on, `cache` types and `experts` (parallel size above 1) narrow it down; None means any. `versions` are the
    first and the last it is known for, both included; others are warned about, with `later` False not even that.
    """

    def __init__(
        self, engine, versions, why, use, source, backends=None, kinds=None, majors=None, cache=None, experts=None,
        later=True, severity=REFUSE,
    ):  # fmt: skip
        self.engine, self.versions, self.why, self.use, self.source = engine, versions, why, use, source
        self.backends, self.kinds, self.majors, self.cache = backends, kinds, majors, cache
        self.experts, self.later, self.severity = experts, later, severity

    def matches(self, facts):
        return (
            facts["engine"] == self.engine
            and _within(facts["backend"], self.backends)
            and _within(facts["kind"], self.kinds)
            and _within(facts["major"], self.majors)
            and _within(facts["cache"], self.cache)
            and (not self.experts or facts["experts"] > 1)
        )

    def known(self, version):
        first, last = self.versions
        return _number(first) <= _number(version)[:3] <= _number(last)


def _within(value, allowed):
    return allowed is None or value in allowed


def _number(version):
    return [int(part) for part in re.findall(r"\d+", version.split("+")[0])]


def _not(*majors):
    """The compute capabilities (major) of GPUs in use that are not among these."""
    return tuple(major for major in (7, 8, 9, 10, 11, 12) if major not in majors)


_V = ("0.32.0", "0.32.99")  # supports_compute_capability() of each backend in vllm/v1/attention/backends/mla
_OTHER_MLA = "leave options.attention_backend out: vLLM takes TRITON_MLA there"
RULES = (
    Rule(
        "sglang", ("0.0.0", "0.5.10"), "its MLA prefill has no kernel for this GPU and dies at the first prompt",
        "declare options.attention_backend: flashinfer (or triton)", "sgl-project/sglang#24633",
        backends=("trtllm_mla", ""), kinds=(DENSE, SPARSE), majors=(12,), later=False,
    ),
    # Accepted by 0.5.17 and 0.5.23, and still reported to fail (sgl-project/sglang#40558).
    Rule(
        "sglang", ("0.5.11", "99"), "its MLA prefill was reported to have no kernel for this GPU",
        "prefer options.attention_backend: flashinfer", "sgl-project/sglang#40558",
        backends=("trtllm_mla",), kinds=(DENSE, SPARSE), majors=(12,), severity=WARN, later=False,
    ),
    Rule(
        "sglang", ("0.0.0", "0.5.17"), "SGLang refuses it on this GPU",
        "declare options.attention_backend: flashinfer (or triton)", "sgl-project/sglang#9140",
        backends=("trtllm_mha",), majors=(12,), later=False,
    ),
    Rule(
        "sglang", ("0.5.23", "0.5.23"), "SGLang refuses it with a KV cache of type fp8_e4m3 on this GPU",
        "declare another options.kv_cache_dtype, or attention_backend: flashinfer", "attention_hook.py of 0.5.23",
        backends=("trtllm_mha",), majors=(12,), cache=("fp8_e4m3",),
    ),
    Rule(
        "sglang", ("0.5.17", "0.5.23"), "SGLang refuses it on GPUs other than SM100",
        "declare options.attention_backend: flashinfer", "overrides.py of 0.5.17 and 0.5.23",
        backends=("cutedsl_mla",), majors=_not(10),
    ),
    Rule(
        "sglang", ("0.0.0", "0.5.10"), "FlashInfer's MLA prefill failed on this GPU in earlier versions",
        "use SGLang 0.5.17 or newer, or options.attention_backend: triton", "sgl-project/sglang#12325",
        backends=("flashinfer",), kinds=(DENSE, SPARSE), majors=(12,), severity=WARN, later=False,
    ),
    Rule(
        "sglang", ("0.5.9", "0.5.9"), "expert parallelism served gibberish on this GPU",
        "declare parallelism.expert: 1", "sgl-project/sglang#21132", majors=(12,), experts=True,
    ),
    *(
        Rule(
            "vllm", _V, "this backend has no kernel for this GPU", _OTHER_MLA, f"its source in {_V[0]}",
            backends=(backend,), majors=majors,
        )
        for backend, majors in (
            ("flashmla", _not(9, 10)),
            ("flashmla_sparse", _not(9, 10)),
            ("flash_attn_mla", _not(9)),
            ("cutlass_mla", _not(10)),
            ("flashinfer_mla", _not(10)),
            ("flashinfer_mla_sparse", _not(10)),
            ("flashinfer_mla_sparse_sm120", _not(12)),
        )
    ),
    Rule(
        "vllm", _V, "the only backend for MLA on this GPU has no KV cache of type fp8_e5m2",
        "declare options.kv_cache_dtype: fp8_e4m3", f"triton_mla.py of {_V[0]}",
        kinds=(DENSE,), majors=(12,), cache=("fp8_e5m2",),
    ),
    Rule(
        "vllm", _V, "dense attention cannot serve a model with sparse attention",
        "SGLang serves such models on this GPU", "vllm-project/vllm#57932",
        backends=("triton_mla",), kinds=(SPARSE,), majors=(12,),
    ),
    Rule(
        "vllm", _V, "the only backend for sparse attention on this GPU was reported to hang under load",
        "SGLang serves such models on this GPU", "vllm-project/vllm#54929, flashinfer-ai/flashinfer#2166",
        backends=("", "flashinfer_mla_sparse_sm120"), kinds=(SPARSE,), majors=(12,), severity=WARN,
    ),
)  # fmt: skip


def kind_of(config):
    """Kind of a model by its config.json, a multimodal wrapper's text_config included."""
    config = {**config, **(config.get("text_config") or {})}
    if not config.get("kv_lora_rank"):
        return None
    return SPARSE if config.get("index_topk") else DENSE


def kind_of_backend(backend):
    """Kind of the models that a backend is for, by its name; None when it serves others."""
    return (SPARSE if "sparse" in backend else DENSE) if "mla" in backend else None


def findings(facts):
    """What is known against a combination: a list of (REFUSE or WARN, what, what to do).

    `facts`: `engine`, `version`, `backend` (lower case, "" for the engine's choice), `kind` of model, `major` of the
    compute capability, `cache` (type of the KV cache) and `experts` (expert parallel size).
    """
    found = []
    for rule in RULES:
        known = rule.known(facts["version"])
        if not rule.matches(facts) or not (known or rule.later):
            continue
        subject = (
            "attention backend {}".format(facts["backend"])
            if rule.backends
            else "{} {}".format(facts["engine"], facts["version"])
        )
        what = "{} on compute capability {}.x: {} ({})".format(subject, facts["major"], rule.why, rule.source)
        if known:
            found.append((rule.severity, what, rule.use))
        else:
            found.append((WARN, f"{what}; not known for {facts['engine']} {facts['version']}", rule.use))
    return found
