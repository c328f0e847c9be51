"""What the simulated model says: known answers to simple questions, else stable pseudo text."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

CAPITALS = {
    "france": "Paris", "germany": "Berlin", "italy": "Rome", "spain": "Madrid", "portugal": "Lisbon",
    "japan": "Tokyo", "china": "Beijing", "poland": "Warsaw", "austria": "Vienna", "greece": "Athens",
    "egypt": "Cairo", "canada": "Ottawa", "norway": "Oslo", "sweden": "Stockholm", "finland": "Helsinki",
    "russia": "Moscow", "ireland": "Dublin", "hungary": "Budapest", "the united kingdom": "London",
    "england": "London", "the united states": "Washington", "india": "New Delhi", "australia": "Canberra",
}  # fmt: skip
WEEK = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
FACTS = (
    (r"opposite of (?:the word )?['\"]?hot", "cold"),
    (r"opposite of (?:the word )?['\"]?up", "down"),
    (r"colou?r of (?:the|a clear) (?:daytime )?sky", "blue"),
    (r"chemical (?:formula|symbol) (?:of|for) water", "H2O"),
    (r"chemical symbol (?:of|for) gold", "Au"),
    (r"how many days (?:are )?(?:there )?in a week", "7"),
    (r"how many legs does a spider have", "8"),
    (r"largest planet", "Jupiter"),
    (r"who wrote (?:the play )?['\"]?(?:hamlet|romeo and juliet)", "William Shakespeare"),
    (r"first president of the united states", "George Washington"),
    (r"boiling point of water.*celsius|water boils at.*celsius", "100"),
    (r"square root of 144", "12"),
)
OPERATORS = {"+": "__add__", "-": "__sub__", "*": "__mul__", "x": "__mul__", "\u00d7": "__mul__"}
WORDS = (
    "the", "of", "engine", "a", "model", "to", "serves", "and",
    "token", "in", "layer", "with", "cache", "for", "batch", "that",
    "on", "as", "is", "by",
)  # fmt: skip


def _arithmetic(text: str) -> str | None:
    text = re.sub(r"\bplus\b", "+", re.sub(r"\bminus\b", "-", re.sub(r"\btimes\b|multiplied by", "*", text)))
    found = re.findall(r"(-?\d+)\s*([+\-*x\u00d7])\s*(\d+)", text)
    if not found:
        return None
    left, operator, right = found[-1]
    return str(getattr(int(left), OPERATORS[operator])(int(right)))


def _sequence(text: str) -> str | None:
    numbers = re.search(r"(\d+(?:,\s*\d+){2,})\s*,?\s*$", text)
    if not numbers:
        return None
    row = [int(n) for n in numbers.group(1).split(",")]
    step = row[-1] - row[-2]
    return ", ".join(str(row[-1] + step * k) for k in range(1, 6))


def known(prompt: str) -> str | None:
    """The bare right answer to a question the table or a rule covers, else None."""
    text = prompt.strip().lower()
    capitals = re.findall(r"capital (?:city )?of ([a-z ]+?)(?:\?|\.|,| is\b|$)", text)
    if capitals:
        return CAPITALS.get(capitals[-1].strip())
    repeat = re.search(r"(?:repeat|reply with|say|answer with|output)[^:\n]*:\s*(.+?)\s*$", prompt.strip(), re.I | re.S)
    if repeat and re.search(r"exactly|only|repeat", text):
        return repeat.group(1)
    hidden = re.search(
        r"(?:secret|magic|pass)[ -]?(?:word|number|code|key)\s*(?:is|:|=)\s*['\"]?([\w-]+)", prompt, re.I
    )
    if hidden and text.endswith(("?", ":", "is", ".")):
        return hidden.group(1)
    for pattern, answer in FACTS:
        if re.search(pattern, text):
            return answer
    day = re.search(r"day (?:comes )?after (\w+)", text)
    if day and day.group(1).capitalize() in WEEK:
        return WEEK[(WEEK.index(day.group(1).capitalize()) + 1) % 7]
    return _arithmetic(text) or _sequence(text)


def pseudo_text(prompt: str, salt: str, tokens: int) -> list[str]:
    """`tokens` words that depend on nothing but the prompt and the salt."""
    words: list[str] = []
    block = b""
    counter = 0
    while len(words) < tokens:
        if not block:
            block = hashlib.sha256(f"{salt}|{counter}|{prompt}".encode()).digest()
            counter += 1
        words.append(" " + WORDS[block[0] % len(WORDS)])
        block = block[1:]
    return words


def instance_of(schema: dict[str, Any]) -> Any:
    """The smallest value that satisfies the common parts of a JSON schema."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return instance_of(schema[key][0])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: instance_of(part) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [instance_of(schema.get("items", {}))] * max(1, int(schema.get("minItems", 1)))
    plain = {"integer": int(schema.get("minimum", 1)), "number": 1.5, "boolean": True, "null": None}
    return plain.get(kind, "example")


def structured(prompt: str, response_format: dict[str, Any]) -> str | None:
    """The reply in JSON mode; None when the request did not ask for it."""
    kind = response_format.get("type")
    if kind == "json_schema":
        schema = response_format.get("json_schema", {}).get("schema", {})
        value = instance_of(schema)
    elif kind == "json_object":
        value = {"answer": known(prompt) or "example"}
    else:
        return None
    if isinstance(value, dict):
        for key in value:  # a model that was asked something puts the right answer where it fits
            answer = known(prompt)
            if answer and isinstance(value[key], str) and "enum" not in json.dumps(response_format):
                value[key] = answer
            elif answer and isinstance(value[key], int) and answer.lstrip("-").isdigit():
                value[key] = int(answer)
            break
    return json.dumps(value)


def tool_arguments(prompt: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Arguments for a tool call; a city named in the prompt goes where a place is asked for."""
    arguments = instance_of({"type": "object", **parameters})
    place = re.search(r"\b(?:in|for|at) ([A-Z][a-z]+)", prompt)
    for name in arguments:
        if place and re.search(r"city|location|place", name):
            arguments[name] = place.group(1)
    return dict(arguments)
