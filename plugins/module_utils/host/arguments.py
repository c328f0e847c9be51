"""Single flags of a release's argument list, as servewright wrote it: `--flag value` or `--flag=value`."""

from __future__ import annotations

import json


def value(release, *flags):
    """The value of the first of some flags that is given, as text; "" for a flag alone; None without."""
    argv = release["argv"]
    for position, word in enumerate(argv):
        name, equals, text = word.partition("=")
        if name in flags:
            after = argv[position + 1] if position + 1 < len(argv) else ""
            return text if equals else "" if after.startswith("--") else after
    return None


def has(release, flag):
    return value(release, flag) is not None


def given(release, *starts):
    """The first word of the arguments that is a flag beginning with one of some texts, without its value, or ""."""
    return next((word.partition("=")[0] for word in release["argv"] if word.startswith(starts)), "")


def number(release, *flags):
    """The value as a number, or None."""
    try:
        return float(value(release, *flags) or "")
    except ValueError:
        return None


def mapping(release, flag):
    """The value of a flag that takes JSON, or an empty mapping."""
    try:
        found = json.loads(value(release, flag) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def draft_model(release):
    """Folder or repository of the draft model, or None."""
    if release["engine"] == "sglang":
        return value(release, "--speculative-draft-model-path", "--speculative-draft-model") or None
    return mapping(release, "--speculative-config").get("model") or value(release, "--spec-model") or None


def tokenizer(release):
    """Folder or repository of a tokenizer that is not the model's own, or None."""
    return value(release, "--tokenizer-path", "--tokenizer") or None
