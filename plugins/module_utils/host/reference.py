"""Answers of a committed release, kept to compare the next release of the same model with.

Kernels of another version round differently, so a right model may go on with other words after a while: an answer
counts as different only when hardly a word agrees, and the release only when every answer is. That finds a model that
talks fluent nonsense, and never one that words it differently. What is subtle needs `verify.prompts`.
"""

from __future__ import annotations

import difflib
import hashlib
import os

from . import files, paths

PROMPTS = (
    "1, 2, 3, 4, 5, 6,",
    "The first letters of the alphabet are A, B, C,",
    "Monday, Tuesday, Wednesday,",
    "def add(a, b):\n    return",
)
TOKENS = 24
DIFFERENT = 0.2  # ratio of words in common; different texts of one language share some words by chance


def path(service):
    return os.path.join(paths.state(service), "answers.json")


def fingerprint(folder):
    """Digest of the names, sizes and times of a model's files: other weights in the same folder are another model."""
    entries = sorted((entry for entry in os.scandir(folder) if entry.is_file()), key=lambda entry: entry.name)
    facts = [(entry.name, entry.stat().st_size, int(entry.stat().st_mtime)) for entry in entries]
    return hashlib.sha256(files.canonical(facts).encode()).hexdigest()


def keep(release, answers):
    """Store the answers (by prompt) of a release that has been committed."""
    model = release["model"]["path"]
    files.write_sealed(
        path(release["service"]),
        {
            "model": model,
            "fingerprint": fingerprint(model),
            "engine": "{} {}".format(release["engine"], release["version"]),
            "answers": answers,
        },
    )


def recorded(release):
    """What keep() stored for the same model, or None."""
    found = files.read_sealed(path(release["service"]))
    model = release["model"]["path"]
    same = found and found["model"] == model and found["fingerprint"] == fingerprint(model)
    return found if same else None


def agreement(one, other):
    """How much two texts agree, from 0 to 1: words in common, in order."""
    return difflib.SequenceMatcher(None, one.split(), other.split(), autojunk=False).ratio()


def differs(old, new):
    """True when no answer of two sets (text by prompt) agrees."""
    both = set(old) & set(new)
    return bool(both) and all(agreement(old[prompt], new[prompt]) < DIFFERENT for prompt in both)
