"""The model and its draft model: files that are there, whole, and can be read by the service's user."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re

from .. import arguments, safetensors, users
from . import engine_process
from .check import fatal, passed, warning

GIB = 1 << 30
# Weights in other formats, which are only looked for; engines load them with --load-format or by themselves.
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".gguf")
# Any of these makes a folder a model: the second is Mistral's own (vLLM 0.32.0 takes it by itself, or by
# --config-format; SGLang 0.5.23 for some models, or by --model-config-parser). The check command_line asks the engine.
CONFIGS = ("config.json", "params.json")
# Endings of the files beside the weights that engines read.
SMALL_FILES = (".json", ".py", ".txt", ".model", ".tiktoken", ".jinja")
# Any of these makes a tokenizer (transformers 5.12.1, mistral-common, tiktoken as in Kimi's own code).
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tiktoken.model", "tekken.json", "spiece.model")
# Where an engine has a class for each architecture (SGLang 0.5.23, vLLM 0.32.0), below its packages.
MODEL_CLASSES = {"sglang": "sglang/srt/models", "vllm": "vllm/model_executor/models"}
# Flags with a JSON mapping that is laid over config.json: get_config (SGLang 0.5.23,
# srt/utils/hf_transformers/config.py), ModelConfig (vLLM 0.32.0, config/model.py).
CONFIG_OVERRIDES = {"sglang": "--json-model-override-args", "vllm": "--hf-overrides"}
NO_WEIGHTS = ("dummy",)  # values of --load-format that read none
_OPEN = "let everybody enter the folders above it and read it (chmod -R o+rX)"


def model(subject):
    """The folders of model and draft are there; the user can read all that is in them beside the weights."""
    return [finding for what, folder in _folders(subject.release) for finding in _folder(subject.release, what, folder)]


def _folders(release):
    """What is read from a folder: (model or draft model, its folder). A repository is the check `repositories`'s."""
    draft = arguments.draft_model(release) or ""
    return [("model", release["model"]["path"])] + [("draft model", draft)] * draft.startswith("/")


def _folder(release, what, path):
    if not os.path.isdir(path):
        return [fatal(f"there is no {what} folder {path}", f"declare the right one, or put the {what} there")]
    configs = [os.path.join(path, name) for name in CONFIGS if os.path.isfile(os.path.join(path, name))]
    if not configs:
        message = f"{path} has no config.json, so it is not a model"
        return [fatal(message, f"declare the folder of the {what} that holds config.json")]
    found = _small_files(release, path)
    if not found and _mapping(configs[0]) is None:
        found = [fatal(f"{configs[0]} is not a JSON mapping", f"copy the {what} again")]
    return found


def _small_files(release, folder):
    """What is wrong with the files beside the weights: configuration, tokenizer, templates, index, code."""
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(SMALL_FILES)]
    paths = [path for path in paths if os.path.isfile(path)]
    found = [
        fatal(f"{path} is a Git LFS pointer, not the file itself", "fetch it: git lfs pull")
        for path in paths
        if safetensors.is_pointer(path)
    ]
    return found + _unreadable(release["user"], paths)


def _unreadable(user, paths):
    refused = users.unreadable(user, paths)
    return [fatal(f"user {user} cannot read {refused[0]}{_more(refused)}", _OPEN)] if refused else []


def read_config(folder, changes=()):
    """config.json with the part for text on top, as engines read it; None when it cannot be read.

    `changes` is laid over both, mappings key by key: engines differ in whether they mean the whole or its text part.
    """
    config = _mapping(os.path.join(folder, "config.json"))
    if config is None:
        return None
    changes = dict(changes)
    config = _laid_over(config, changes)
    text = config.get("text_config")
    return _laid_over({**config, **text}, changes) if isinstance(text, dict) else config


def declared_config(release):
    """The model's config.json as read_config gives it, under what the command line lays over it."""
    return read_config(release["model"]["path"], arguments.mapping(release, CONFIG_OVERRIDES[release["engine"]]))


def _laid_over(config, changes):
    def value(name, new):
        old = config.get(name)
        return {**old, **new} if isinstance(old, dict) and isinstance(new, dict) else new

    return {**config, **{name: value(name, new) for name, new in changes.items()}}


def _mapping(path):
    """A JSON mapping from a file, or None."""
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def architecture(subject):
    """The engine's own code names the model's architecture; with others it may still try Transformers' code."""
    release = subject.release
    top = os.path.join(engine_process.packages(release["venv"]), MODEL_CLASSES[release["engine"]])
    if not os.path.isdir(top):
        return []  # a layout that is not known
    code = _code(top)
    return [
        warning(
            "{} {} names no class {}, the architecture of the {}: it would try Transformers' code, or end".format(
                release["engine"], release["version"], name, what
            ),
            "take a version of the engine that has it",
            architecture=name,
        )
        for what, folder in _folders(release)
        for config in [read_config(folder) or {}]
        for name in config.get("architectures") or []
        # What the tool "speculators" wrote carries a name of its own, which vLLM translates.
        if "speculators_config" not in config and not re.search(rf"\b{re.escape(str(name))}\b", code)
    ]


def _code(top):
    """Text of all Python files below a folder."""
    texts = []
    for path in sorted(glob.glob(os.path.join(glob.escape(top), "**", "*.py"), recursive=True)):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
            texts.append(stream.read())
    return "\n".join(texts)


def weights(subject):
    """Every weight file of the model and of its draft is there, whole, and readable by the service's user."""
    return [finding for _what, folder in _folders(subject.release) for finding in _weights(folder, subject.release)]


def _weights(folder, release):
    if not os.path.isdir(folder) or arguments.value(release, "--load-format") in NO_WEIGHTS:
        return []
    try:
        names = safetensors.shards(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [fatal(f"{safetensors.index(folder)} cannot be read", "copy the model again")]
    names = names or sorted(name for name in os.listdir(folder) if name.endswith(OTHER_WEIGHTS))
    if not names:
        return [fatal(f"{folder} has no weights", "copy the model again, or declare its folder")]
    paths = [os.path.join(folder, name) for name in names]
    troubles = [(name, safetensors.trouble(path)) for name, path in zip(names, paths)]
    missing = [name for name, why in troubles if why == "is missing"]
    found = [
        fatal(f"{folder}/{name} {why}", "copy that file again") for name, why in troubles if why and name not in missing
    ]
    if missing:
        found.append(_missing(folder, missing, paths))
    found += _unreadable(release["user"], [path for path in paths if os.path.exists(path)])
    size = sum(os.path.getsize(path) for path in paths if os.path.exists(path))
    return found or [passed(f"{len(paths)} weight files, {size / GIB:.1f} GiB", bytes=size)]


def _missing(folder, missing, paths):
    """Names what is missing, and says whether it would fit: nothing is fetched here."""
    there = sum(os.path.getsize(path) for path in paths if os.path.exists(path))
    left = max(0, safetensors.total_size(folder) - there)
    state = os.statvfs(folder)
    free = state.f_bavail * state.f_frsize
    message = f"{folder} lacks {len(missing)} of {len(paths)} weight files: {missing[0]}{_more(missing)}"
    if left > free:
        message += f"; {left / GIB:.1f} GiB are missing, and only {free / GIB:.1f} GiB are free there"
        return fatal(message, "make room, then copy the rest of the model", missing_bytes=left, free_bytes=free)
    return fatal(message, "copy the rest of the model", missing_bytes=left, free_bytes=free)


def _more(names):
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def tokenizer(subject):
    """There is a tokenizer."""
    release = subject.release
    folder = arguments.tokenizer(release) or release["model"]["path"]
    if not os.path.isdir(folder) or arguments.has(release, "--skip-tokenizer-init"):
        return []
    names = os.listdir(folder)
    if any(name in TOKENIZERS or name.endswith(".tiktoken") for name in names):
        return [] if folder == release["model"]["path"] else _small_files(release, folder)
    if any(name.startswith("tokenization_") for name in names):
        return [warning(f"{folder} has no tokenizer file of a known name, only code for one", "see that it is whole")]
    return [fatal(f"{folder} has no tokenizer ({', '.join(TOKENIZERS[:4])}, ...)", "copy the model's tokenizer there")]


def repositories(subject):
    """Nothing is left to be fetched at the start: models are folders, not names of repositories."""
    release = subject.release
    named = {"draft model": arguments.draft_model(release), "tokenizer": arguments.tokenizer(release)}
    return [
        finding
        for what, name in named.items()
        if name and not name.startswith("/")
        for finding in _repository(release, what, name)
    ]


def _repository(release, what, name):
    environment = release["environment"]
    hub = environment.get("HF_HUB_CACHE") or os.path.join(environment.get("HF_HOME", ""), "hub")
    snapshots = os.path.join(hub, "models--" + name.replace("/", "--"), "snapshots")
    repair = "put it into a folder and declare its absolute path"
    if os.path.isdir(snapshots) and os.listdir(snapshots):
        at = os.path.join(snapshots, sorted(os.listdir(snapshots))[-1])
        return [
            warning(f"the {what} is named as repository {name}; engines differ in what they ask for", f"declare {at}")
        ]
    if environment.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return [
            fatal(f"the {what} is repository {name}, which is not in {hub}, and HF_HUB_OFFLINE keeps it away", repair)
        ]
    found = [
        warning(f"the {what} is repository {name}: the start would fetch it, which can take longer than it may", repair)
    ]
    if not {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} & {*release["secrets"], *environment}:
        message = f"repository {name} is fetched without a token; a gated one refuses that, even when it is cached"
        found.append(warning(message, "declare HF_TOKEN under secrets, or a folder"))
    return found
