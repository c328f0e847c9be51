"""Is a text degenerate: one token over and over, nothing, or bytes that are no text? Says nothing about its truth."""

from __future__ import annotations

import re

# A row of one of these signs is a line in a table, a heading or code, and no fault.
_LINES = "-=_*~#.+|/\\ \t\n\r\u3000\u00b7\u2026\u2500\u2501\u2502\u2503\u2550\u2551"
SAME_SIGNS = 16  # a right answer within some dozen tokens has no sign 16 times in a row, and no few signs
FEW_SIGNS = 12
SAME_WORDS = 8  # nor a word 8 times; greedy decoding of a small model may repeat a sentence, which is not looked for
BROKEN_SIGNS = 8  # U+FFFD: a token cut within a character gives one or two at an end, not eight


def degenerate(text):
    """What is wrong with a text, in words, or None."""
    row = re.search(rf"([^{re.escape(_LINES)}])\1{{{SAME_SIGNS - 1},}}", text)
    if row:
        return f"{row.group(1)!r} {len(row.group(0))} times in a row"
    row = re.search(rf"(.{{2,{FEW_SIGNS}}}?)\1{{{SAME_SIGNS - 1},}}", text)
    if row and row.group(1).strip(_LINES):
        return f"{row.group(1)!r} {len(row.group(0)) // len(row.group(1))} times in a row"
    words = text.split()
    count = 1
    for before, word in zip(words, words[1:]):
        count = count + 1 if word == before and word.strip(_LINES) else 1
        if count >= SAME_WORDS:
            return f"the word {word[:40]!r} {SAME_WORDS} times in a row"
    if text.count("\ufffd") >= BROKEN_SIGNS:
        return f"{text.count(chr(0xFFFD))} bytes that are no text"
    return None
