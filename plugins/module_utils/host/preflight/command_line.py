"""The command line, asked of the engine that is to start: by its own parser, in its environment, as its user."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pkgutil
import re

from .. import arguments, files, paths

# engine_script is only read here, as text; the import has Ansible send it, too.
from . import engine_facts, engine_process, engine_script
from .check import fatal, passed, warning

TIMEOUT_SECONDS = 180  # importing an engine from a cold disk takes a minute
KEPT_ANSWERS = 100
_NOT_CLEAN = ("failure", "broken", "unavailable", "unknown", "duplicates", "problems")
_unkept = {}  # path to answer


def command_line(subject):
    """The engine takes every flag as it was meant, and the model's configuration with it."""
    release = subject.release
    if not all(os.access(word, os.X_OK) for word in release["argv"][:2] if word.startswith("/")):
        return []  # another check says so
    answer, cached = _answer(release)
    name = "{} {}".format(release["engine"], release["version"])
    if "failure" in answer:
        return [
            warning(
                f"the argument parser of {name} could not be asked: {answer['failure']}",
                "the flags are checked by the start alone",
                log=answer.get("log", []),
            )
        ]
    if answer["broken"]:
        return [
            fatal(
                "as user {}, {}".format(release["user"], answer["broken"]),
                "install {} anew into {}, readable by everybody".format(name, release["venv"]),
            )
        ]
    found = _installed(release, answer["versions"])
    if answer["unavailable"]:
        message = f"the argument parser of {name} is not where it was in known versions: {answer['unavailable']}"
        return [*found, warning(message, "the flags are checked by the start alone")]
    found += [_unknown(release, item) for item in answer["unknown"]]
    found += [_duplicate(*pair) for pair in answer["duplicates"]]
    found += [fatal(f"{name} refuses its arguments: {text}", "declare a value it takes") for text in answer["problems"]]
    found += _deeper(release, name, answer["deeper"])
    evidence = {"seconds": answer["seconds"], "cached": cached, "versions": answer["versions"]}
    return found or [passed(f"{name} takes its arguments", **evidence)]


def _installed(release, versions):
    version = versions.get(release["engine"])
    if version is None or version.split("+")[0] == release["version"]:
        return []
    return [
        fatal(
            "{} holds {} {}, declared is {}".format(release["venv"], release["engine"], version, release["version"]),
            f"declare version: {version}, or the environment of the version that is meant",
        )
    ]


def _unknown(release, item):
    """A flag that the engine does not have: abbreviated, removed, misspelt, or none of these."""
    flag = item["flag"]
    name = "{} {}".format(release["engine"], release["version"])
    for engine, removed, since, instead, source in engine_facts.REMOVED_FLAGS:
        if (engine, removed) == (release["engine"], flag):
            when = f" since {since}" if since else ""
            return fatal(f"{name} has no flag {flag} any more{when}", instead, source=source)
    longer = item["longer"]
    if len(longer) == 1:
        return fatal(
            "{} is an abbreviation of {}, which {} would take without a word".format(flag, *longer, release["engine"]),
            "write {}".format(*longer),
        )
    near = ", ".join(longer or item["near"])
    return fatal(
        f"{name} has no flag {flag}",
        f"did you mean {near}?" if near else "leave it out, or declare the version that has it",
    )


def _duplicate(one, two):
    if one == two:
        return fatal(f"{one} is given twice, and the engine would take the last without a word", "declare it once")
    return fatal(f"{one} and {two} set the same option, and the engine would take the last", "declare one of them")


def _deeper(release, name, text):
    """What the engine said of the configuration that it made from arguments and model."""

    def said(table):
        return any(engine in ("", release["engine"]) and re.search(pattern, text) for engine, pattern, _seen in table)

    if not text or (release["gpus"] and said(engine_facts.NO_GPU)):
        return []
    if not release["gpus"] or said(engine_facts.CERTAIN):
        return [fatal(f"{name} refuses this model with these arguments: {text}", "declare what the model can do")]
    return [
        warning(
            f"{name} could not finish its configuration, maybe for want of a GPU, which it was not given: {text}",
            "if it is right, the start will show it",
        )
    ]


def _answer(release):
    """What the engine's parser says, and whether that was known from before."""
    path = os.path.join(paths.PREFLIGHT, _key(release) + ".json")
    with contextlib.suppress(ValueError):
        known = json.loads((files.read_bytes(path) or b"").decode() or "null")
        if known is not None:
            return known, True
    answer = _ask(release)
    if not any(answer.get(name) for name in _NOT_CLEAN):
        _unkept[path] = answer
        # A look at a host that servewright does not manage yet leaves nothing on it.
        if os.path.exists(paths.HOST_PYZ):
            keep()
    return answer, False


def keep():
    """Write the clean answers that this process got, on a host that is managed."""
    while _unkept:
        path, answer = _unkept.popitem()
        files.write(path, json.dumps(answer))
        _prune()


def _key(release):
    """Digest of all that the answer depends on."""
    facts = [
        _script(),
        [release[name] for name in ("engine", "version", "argv", "user", "model", "listen")],
        # Neither engine's parser reads NCCL's variables.
        {name: value for name, value in release["environment"].items() if not name.startswith("NCCL_")},
        [_stamp(path) for path in _read_by_engine(release)],
    ]
    return hashlib.sha256(files.canonical(facts).encode()).hexdigest()[:32]


def _read_by_engine(release):
    """The environment's packages by their metadata, files that are named, and configurations in folders that are."""
    named = [word.partition("=")[2] if word.startswith("--") else word for word in release["argv"]]
    named += [release["model"]["path"], arguments.draft_model(release) or ""]
    named = [path for path in dict.fromkeys(named) if path.startswith("/")]
    found = [os.path.join(release["venv"], "pyvenv.cfg"), *filter(os.path.isfile, named)]
    for top, wanted in ((engine_process.packages(release["venv"]), ".dist-info"), *((top, ".json") for top in named)):
        with contextlib.suppress(OSError):
            found += [os.path.join(top, name) for name in sorted(os.listdir(top)) if name.endswith(wanted)]
    return found


def _stamp(path):
    try:
        entry = os.stat(path)
    except OSError:
        return [path]
    return [path, entry.st_mtime_ns, entry.st_size]


def _prune():
    entries = [entry for entry in os.scandir(paths.PREFLIGHT) if entry.name.endswith(".json")]
    for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime)[:-KEPT_ANSWERS]:
        os.unlink(entry.path)


def _ask(release):
    job = {"engine": release["engine"], "argv": release["argv"][3:], "declared": _declared(release)}
    return engine_process.ask(release, _script(), job, TIMEOUT_SECONDS)


def _script():
    return (pkgutil.get_data(__package__, engine_script.__name__.rpartition(".")[2] + ".py") or b"").decode()


def _declared(release):
    """What the parser must have read, by the name it was declared under."""
    values = {
        "model.path": release["model"]["path"],
        "model.served_name": release["model"]["served_name"],
        "model.context_length": release["model"]["context_length"],
        "listen.host": release["listen"]["host"],
        "listen.port": release["listen"]["port"],
        "parallelism.tensor": release.get("parallelism", {}).get("tensor"),
        "parallelism.pipeline": release.get("parallelism", {}).get("pipeline"),
    }
    return {name: value for name, value in values.items() if value is not None}
