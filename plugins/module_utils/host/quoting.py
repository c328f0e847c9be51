"""Quoting for systemd: the only place that turns a value into text of a unit or an environment file.

Rules: systemd.syntax(7), systemd.service(5) "Command lines" and systemd.exec(5) "EnvironmentFile=".
A round trip through a real systemd is property-tested in tests/hosts.
"""

from __future__ import annotations

import re

_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\v": "\\v",
}
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=./:,@")


def _escaped(value: str) -> str:
    if "\0" in value:
        raise ValueError("a NUL byte cannot be part of an argument or environment variable")
    out = []
    for char in value:
        if char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif char < " " or char == "\x7f":
            out.append(f"\\x{ord(char):02x}")
        else:
            out.append(char)
    return "".join(out)


def quote_argument(value: str) -> str:
    """One word of ExecStart= and its like: no specifier, variable, separator or special character keeps a meaning.

    The first word of a command is an absolute path, so none of the prefixes of systemd.service(5) can stand there.
    """
    if value and all(char in _PLAIN for char in value):
        return value
    return '"' + _escaped(value).replace("%", "%%").replace("$", "$$") + '"'


def quote_assignment(name: str, value: str) -> str:
    """One `NAME=value` word of Environment=, where `%` is a specifier but `$` is an ordinary character."""
    return '"' + _escaped(f"{name}={value}").replace("%", "%%") + '"'


def seconds(value: float) -> str:
    """A time span in seconds, which systemd knows to a microsecond and reads without an exponent only."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def environment_file_line(name: str, value: str) -> str:
    """One line of an EnvironmentFile=: inside double quotes only `"`, `\\`, `$` and backtick need a backslash,
    a line break stands for itself, and `%` has no meaning."""
    if "\0" in value:
        raise ValueError("a NUL byte cannot be part of an environment variable")
    escaped = "".join("\\" + char if char in '"\\$`' else char for char in value)
    return f'{name}="{escaped}"\n'


def environment_file_values(text: str) -> dict[str, str]:
    """Values by name of the lines that environment_file_line wrote; a value may go on over several of them."""
    found = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"\n', text, re.DOTALL)
    return {name: re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL) for name, value in found}


def plain_text(value: str) -> str:
    """A value such as Description=, which is not split into words but in which `%` is a specifier."""
    return " ".join(value.split()).replace("\\", "\\\\").replace("%", "%%")
