"""Prompts of random words: no two begin alike, so no prefix cache holds them."""

from __future__ import annotations

# Common and short: about one token each with the tokenizers of today's models.
_WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system",
    "program", "question", "work", "government", "number", "night", "point", "home", "water", "room", "mother",
    "area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word", "business",
    "issue", "side", "kind", "head", "house", "service", "friend", "father", "power", "hour", "game", "line", "end",
    "member", "law", "car", "city", "community", "name", "president", "team", "minute", "idea", "body",
    "information", "back", "parent", "face", "others", "level", "office", "door", "health", "person", "art", "war",
    "history", "party", "result", "change", "morning", "reason", "research", "girl", "guy", "moment", "air",
    "teacher", "force", "education", "foot", "boy", "age", "policy", "music", "market", "sense",
)  # fmt: skip


def text(random, count):
    """A prompt of `count` words, drawn with a random.Random."""
    return " ".join(random.choices(_WORDS, k=count))
