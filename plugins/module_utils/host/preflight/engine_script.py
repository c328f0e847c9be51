"""Asks an engine's own argument parser what it makes of a command line.

Not part of the host library at run time: its text is handed to the interpreter of the engine's environment, which
knows nothing of this library and may be any Python that an engine runs on. It gets `job` (engine, argv, declared) and
writes one JSON document to `answer`, a stream of its own, because engines log to standard output.

All of argparse is watched instead of one engine's functions: engines move them between versions, and both use argparse.
Engines take an abbreviation and the last of two duplicates silently; here an abbreviation is an unknown flag that
has a long form, and a duplicate is named.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time

# Where each thing is, newest layout first. vLLM 0.32.0 and 0.31.0 have the first, 0.26.0 and older ones the others.
PARSER = {
    "vllm": ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args"),
    "sglang": ("sglang.srt.server_args",),
}
FLEXIBLE = ("vllm.utils.argparse_utils", "vllm.utils")
# What a parsed value is called by each engine, and by servewright.
NAMES = {
    "vllm": {
        "model.path": ("model_tag", "model"),
        "model.served_name": ("served_model_name",),
        "model.context_length": ("max_model_len",),
        "listen.host": ("host",),
        "listen.port": ("port",),
        "parallelism.tensor": ("tensor_parallel_size",),
        "parallelism.pipeline": ("pipeline_parallel_size",),
    },
    "sglang": {
        "model.path": ("model_path",),
        "model.served_name": ("served_model_name",),
        "model.context_length": ("context_length",),
        "listen.host": ("host",),
        "listen.port": ("port",),
        "parallelism.tensor": ("tp_size",),
        "parallelism.pipeline": ("pp_size",),
    },
}
# SGLang takes these as text and parses them while it loads (srt/server_args.py, 0.5.17 to 0.5.23).
JSON_FLAGS = (
    "--json-model-override-args",
    "--preferred-sampling-params",
    "--model-loader-extra-config",
    "--cuda-graph-config",
    "--kv-events-config",
    "--mm-process-config",
)


class Refused(Exception):
    """The parser has said no."""


class Watch:
    """What was seen of the parsers of this process."""

    def __init__(self):
        self.unknown = []
        self.duplicates = []
        self.problems = []
        self.parsed = None

    def install(self):
        parser = argparse.ArgumentParser
        parse_known_args, watch = parser.parse_known_args, self

        def known(self, args=None, namespace=None, **more):
            self.allow_abbrev = False
            watch.look(self, list(args or []))
            return parse_known_args(self, args, namespace, **more)

        def whole(self, args=None, namespace=None):
            namespace, extras = self.parse_known_args(args, namespace)
            watch.note_unknown(self, extras)
            watch.parsed = namespace
            return namespace

        def error(self, message):
            raise Refused(message)

        def leave(self, status=0, message=None):
            raise Refused("a flag makes the engine print something and end at once")

        parser.parse_known_args, parser.parse_args, parser.error, parser.exit = known, whole, error, leave

    def look(self, parser, words):
        """Duplicates, and JSON that the engine itself would read only while it loads."""
        seen = {}
        for position, word in enumerate(words):
            name, equals, value = word.partition("=")
            action = parser._option_string_actions.get(name)
            if action is None:
                continue
            appends = isinstance(action, (argparse._AppendAction, argparse._CountAction))
            if action.dest in seen and not appends:
                self.duplicates.append([seen[action.dest], name])
            seen[action.dest] = name
            text = value if equals else words[position + 1] if position + 1 < len(words) else ""
            if name in JSON_FLAGS and text and not text.startswith("@"):
                try:
                    json.loads(text)
                except ValueError as wrong:
                    self.problems.append("argument %s: %r is not JSON: %s" % (name, text, wrong))

    def note_unknown(self, parser, extras):
        flag = None
        known = sorted(parser._option_string_actions)
        for word in extras:
            if word.startswith("-") and not word.lstrip("-")[:1].isdigit():
                flag = word.partition("=")[0]
                longer = [name for name in known if name.startswith(flag) and flag.startswith("--")]
                self.unknown.append({"flag": flag, "longer": longer, "near": near(flag, known)})
            elif flag is None:
                self.unknown.append({"flag": word, "longer": [], "near": []})


def near(flag, known):
    import difflib

    return difflib.get_close_matches(flag, known, n=1, cutoff=0.7)


def first(modules, name):
    """An attribute of the first module that has it. Raises ImportError when none does."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as missing:
            if not module.startswith(missing.name or "-"):
                raise  # it is there, and something that it needs is not
        except AttributeError:
            continue
    raise ImportError("no %s in %s" % (name, " or ".join(modules)))


def vllm(argv, watch):
    """Gives the deeper check as a function."""
    make_arg_parser = first(PARSER["vllm"], "make_arg_parser")
    parser = make_arg_parser(first(FLEXIBLE, "FlexibleArgumentParser")(prog="vllm serve"))
    arguments = parser.parse_args(argv)

    def deeper():
        first(PARSER["vllm"], "validate_parsed_serve_args")(arguments)
        if getattr(arguments, "model_tag", None):
            arguments.model = arguments.model_tag
        engine = first(("vllm.engine.arg_utils",), "AsyncEngineArgs").from_cli_args(arguments)
        engine.create_engine_config()

    return deeper


def sglang(argv, watch):
    prepare = first(PARSER["sglang"], "prepare_server_args")
    try:
        prepared = prepare(argv)
    except Exception as error:
        if watch.parsed is None or isinstance(error, Refused):
            raise
        wrong = error  # the flags are right; older versions resolve them at once

        def deeper():
            raise wrong

        return deeper

    def deeper():
        for name in ("resolve_once", "check_server_args"):
            if hasattr(prepared, name):
                getattr(prepared, name)()

    return deeper


def compare(engine, declared, parsed):
    """What the parser read where servewright declared something else: a later flag or a config file won."""
    found = []
    for field, value in sorted(declared.items()):
        for name in NAMES[engine][field]:
            seen = getattr(parsed, name, None)
            if seen is not None:
                seen = seen[0] if isinstance(seen, list) and len(seen) == 1 else seen
                if seen != value:
                    found.append("%s is declared as %r, and the engine reads %r" % (field, value, seen))
                break
    return found


def versions(engine):
    """Versions of what an engine stands on; importing torch as the service's user is itself a check."""
    from importlib import metadata

    found = {}
    for name in (
        engine,
        "torch",
        "nvidia-nccl-cu13",
        "nvidia-nccl-cu12",
        "flashinfer-python",
        "triton",
        "transformers",
    ):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def one_line(error):
    """The text of an error, without the dump of values and the link that pydantic adds."""
    lines = [line.partition(" [type=")[0].strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith("For further information"))[:1000]


def told(error):
    return "%s: %s" % (type(error).__name__, one_line(error))


def examine(job):
    begin, engine, watch = time.monotonic(), job["engine"], Watch()
    answer = {"broken": "", "unavailable": "", "problems": [], "deeper": "", "versions": versions(engine)}
    try:
        for name in ["torch"] * ("torch" in answer["versions"]) + [engine]:
            importlib.import_module(name)
    except BaseException as error:
        answer["broken"] = "%s cannot be imported: %s" % (name, told(error))
        return answer
    watch.install()
    deeper = None
    try:
        deeper = {"vllm": vllm, "sglang": sglang}[engine](job["argv"], watch)
    except Refused as error:
        answer["problems"].append(one_line(error))
    except ImportError as error:
        answer["unavailable"] = told(error)
    except (ValueError, TypeError, argparse.ArgumentTypeError, AssertionError, OSError) as error:
        answer["problems"].append(told(error))
    answer["problems"] += watch.problems
    answer["unknown"], answer["duplicates"] = watch.unknown, watch.duplicates
    if deeper is not None and watch.parsed is not None:
        answer["problems"] += compare(engine, job["declared"], watch.parsed)
    if deeper is not None and not (answer["problems"] or watch.unknown or watch.duplicates):
        try:
            deeper()
        except BaseException as error:
            answer["deeper"] = told(error)
    answer["seconds"] = round(time.monotonic() - begin, 2)
    return answer


def main(job):
    stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    stream.write("\n" + json.dumps(examine(job)) + "\n")
    stream.flush()
    os._exit(0)  # an engine may have left threads


if "job" in globals():
    main(globals()["job"])
