"""What looks like a secret in text of others (units, command lines, logs) is not shown."""

from __future__ import annotations

import re

HIDDEN = "(not shown)"
# Words in names that secrets go by; not tokenizers, nor counts such as "--max-total-tokens 8192".
_WORDS = r"(?:TOKEN(?!IZ|S\W+\d+\b)|KEY(?!ERROR|RING)|SECRET|PASS(?=W|PHRASE|[\"'\s=:])|CREDENTIAL|_PWD)"
# A value follows "=" or ":" (a space after ":" only where the name is quoted, as in JSON: our own lines have one), or
# stands behind an option or a scheme of authorization.
_BEFORE_VALUE = re.compile(
    rf"{_WORDS}[\w.-]*(?:[\"']?\s*=\s*|[\"']\s*:\s*|:(?=\S))|(?<![\w.-])--?[\w.-]*{_WORDS}[\w.-]*\s+|\bBearer\s+",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(?<=://)[^\s/\"']+(?=@)")  # user:password@host


def named(name, value=""):
    """True when a name (of a variable, a flag, a field) looks like that of a secret; its value tells a count."""
    found = re.search(_WORDS, f"{name}={value}", re.IGNORECASE)
    return found is not None and found.start() < len(name)


def shown(text):
    """A line of text without values of secrets, and without what an address logs in with."""
    out, begin = [], 0
    while found := _BEFORE_VALUE.search(text, begin):
        out += [text[begin : found.end()], HIDDEN]
        begin = _end(text, found.end())
    return _IN_ADDRESS.sub(HIDDEN, "".join(out) + text[begin:])


def _end(text, begin):
    """Where a value ends: at the quote that closes it or what it stands in, or at a space outside of quotes."""
    quote, inside, skipped = "", False, False
    for index, char in enumerate(text):
        inside = inside or (index == begin and quote != "")  # the quote was open before
        if skipped:
            skipped = False
        elif char == "\\":
            skipped = True
        elif char == quote:
            if inside:
                return index
            quote = ""
        elif not quote and char in "\"'":
            quote = char
        elif not quote and char.isspace() and index >= begin:
            return index
    return len(text)
