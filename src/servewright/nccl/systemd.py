"""The environment that a systemd unit declares, read with systemd's own rules of quoting.

Source: systemd.exec(5), Environment= and EnvironmentFile=; systemd.syntax(7), quoting and line continuation;
systemd src/basic/env-file.c and src/basic/extract-word.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .sources import Entry, Location

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_NUMBERED = {"x": (2, 16), "u": (4, 16), "U": (8, 16)}
_SHELL_ESCAPED = '"\\`$'
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class UnitEnvironment(NamedTuple):
    """What a unit sets. files are the EnvironmentFile= paths that were not given, with the leading - kept."""

    entries: list[Entry]
    files: list[str]


def unit(text: str, file: str, environment_files: Mapping[str, str] | None = None) -> UnitEnvironment:
    """The environment of a unit's [Service] section, later settings over earlier ones.

    environment_files holds the contents of EnvironmentFile= paths; systemd reads those after all Environment=
    lines, so they win. Specifiers (%h) and patterns (*) in paths stay as they are written.
    """
    environment_files = environment_files or {}
    chosen: dict[str, Entry] = {}
    paths: list[str] = []
    section = ""
    for number, line in _logical(text):
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line
            continue
        key, separator, value = (part.strip() for part in line.partition("="))
        if section != "[Service]" or not separator:
            continue
        if key == "Environment":
            if not value:
                chosen.clear()
            for name, given in (word.split("=", 1) for word in words(value) if "=" in word):
                _keep(chosen, name, given.replace("%%", "%"), Location(file, number))
        elif key == "UnsetEnvironment":
            for word in words(value):
                name, equals, given = word.partition("=")
                if name in chosen and (not equals or chosen[name].value == given):
                    del chosen[name]
        elif key == "EnvironmentFile":
            paths = [*paths, value] if value else []
    missing = []
    for path in paths:
        content = environment_files.get(path.removeprefix("-"))
        if content is None:
            missing.append(path)
            continue
        for entry in environment_file(content, path.removeprefix("-")):
            _keep(chosen, *entry)
    return UnitEnvironment(list(chosen.values()), missing)


def command(text: str) -> list[str]:
    """The arguments of a unit's last ExecStart=, without prefixes like -; [] when there is none."""
    found = ""
    for _, line in _logical(text):
        key, separator, value = (part.strip() for part in line.partition("="))
        if key == "ExecStart" and separator:
            found = value.lstrip("@-:+!")
    return words(found)


def words(text: str) -> list[str]:
    """Splits a value into words: at spaces, with quotes around a whole word or part of it, and C escapes.

    An unfinished quote reaches to the end; systemd would refuse the line, a reader shows what is there.
    """
    result: list[str] = []
    word: str | None = None
    quote = ""
    characters = iter(text)
    for character in characters:
        if character == "\\":
            word = (word or "") + _unescape(characters)
        elif quote:
            if character == quote:
                quote = ""
            else:
                word = (word or "") + character
        elif character in "\"'":
            quote, word = character, word or ""
        elif character.isspace():
            if word is not None:
                result.append(word)
            word = None
        else:
            word = (word or "") + character
    return result if word is None else [*result, word]


def environment_file(text: str, file: str) -> list[Entry]:
    """The variables of an EnvironmentFile=, the last line of a name winning.

    # and ; start a comment only where a name would start, and it ends with its line (so from systemd 254 on).
    Quotes around a value may hold newlines, and after the closing one the value may go on. Spaces around name
    and value do not count, and a backslash joins lines.
    """
    chosen: dict[str, Entry] = {}
    name = value = spaces = quote = ""
    state = "before name"
    start = number = 1
    for character in text:
        number += character == "\n"
        newline, space = character in "\n\r", character in " \t\n\r"
        if state == "comment":
            state = "before name" if newline else state
        elif state == "before name":
            if character in "#;":
                state = "comment"
            elif not space:
                state, name, start = "name", character, number
        elif state == "name":
            if newline:
                state = "before name"
            elif character == "=":
                state, value, spaces = "before value", "", ""
            else:
                name += character
        elif state == "escaped":
            state = "value"
            if not newline:
                value, spaces = value + spaces + character, ""
        elif state == "quoted":
            if character == quote:
                state = "before value"
            elif character == "\\" and quote == '"':
                state = "escaped in quotes"
            else:
                value += character
        elif state == "escaped in quotes":
            state = "quoted"
            if character != "\n":
                value += character if character in _SHELL_ESCAPED else "\\" + character
        elif newline:
            state = "before name"
            _keep(chosen, name, value, Location(file, start))
        elif state == "before value" and character in "\"'":
            state, quote = "quoted", character
        elif character == "\\":
            state, value, spaces = "escaped", value + spaces, ""
        elif space:
            spaces += character if state == "value" else ""
        else:
            state, value, spaces = "value", value + spaces + character, ""
    if state not in {"before name", "name", "comment"}:
        _keep(chosen, name, value, Location(file, start))
    return list(chosen.values())


def is_name(text: str) -> bool:
    """Whether systemd takes a text as the name of a variable."""
    return _NAME.fullmatch(text) is not None


def _keep(chosen: dict[str, Entry], name: str, value: str, origin: Location) -> None:
    """Takes a variable in, if systemd would take its name."""
    if is_name(name.rstrip()):
        chosen[name.rstrip()] = Entry(name.rstrip(), value, origin)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, continued ones joined by a space, comments dropped."""
    held, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith(("#", ";")):
            continue
        first = first if held else number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        yield first, held + line
        held = ""
    if held:
        yield first, held


def _unescape(characters: Iterator[str]) -> str:
    """What a backslash and the characters after it stand for; an unknown escape is left as written."""
    character = next(characters, "")
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character in _NUMBERED or character in "01234567":
        length, base = _NUMBERED.get(character, (2, 8))
        digits = "".join(digit for digit in (next(characters, "") for _ in range(length)))
        digits = digits if character in _NUMBERED else character + digits
        try:
            return chr(int(digits, base))
        except ValueError:
            return "\\" + character + digits
    return character if character in "\\\"'" else "\\" + character
