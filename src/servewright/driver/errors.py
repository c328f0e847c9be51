"""Ansible's own errors, in words that say what to do."""

from __future__ import annotations

import re

# Looked up in this order; {0} is what the parentheses of the pattern caught.
_HOST_ERRORS = (
    (
        r"(missing|incorrect) (?:sudo|su|doas|become) password|sudo: .*password.* required",
        "sudo needs a password: give --ask-become-pass (-K), or allow sudo without one",
    ),
    (r"([^\n]*(?:may not run sudo|is not in the sudoers|not allowed to execute)[^\n]*)", "sudo says no: {0}"),
    (r"sudo: (?:command )?not found|sudo: No such file", "there is no sudo: log in as root, or install it"),
    (r"waiting for privilege escalation prompt", "sudo did not answer: does it ask for more than a password? ({text})"),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its SSH host key is not the known one. If the host was set up anew: ssh-keygen -R HOST, then ssh to it once",
    ),
    (r"Host key verification failed|host key is known", "its SSH host key is not known: ssh to it once and compare it"),
    (
        r"Permission denied \(([^)]*)\)",
        "SSH refused the login ({0}): check ansible_user and the key, or load the key into ssh-agent",
    ),
    (r"Could not resolve hostname ([^ :]+)", "the name {0} does not resolve: check ansible_host"),
    (
        r"to use the 'ssh' connection type with passwords.*sshpass",
        "a login with a password needs the program sshpass on this machine",
    ),
    (r"Failed to connect to the host via ssh: (?:ssh: )?(.*)", "no SSH connection: {0}"),
    (
        r"module interpreter '([^']*)' was not found|([^\s:]*python[\d.]*): (?:command )?not found",
        "there is no Python at {0}: install python3 (3.9 or newer), or set ansible_python_interpreter",
    ),
    (
        r"no vault secrets found",
        "the inventory holds vaulted values: add -- --ask-vault-pass, or -- --vault-password-file FILE",
    ),
    (r"Decryption failed|Vault password.*(?:wrong|incorrect)", "the vault password does not fit: {text}"),
)
_RUN_ERRORS = (
    (
        r"leaves us with no hosts to target|Could not match supplied host pattern, ignoring: ([^\s\[]*)",
        "no host of the inventory matches --limit{limit}",
    ),
    (r"ansible-playbook: error: (.*)", "Ansible does not take these options: {0}"),
    (r"requires the locale encoding to be UTF-8", "Ansible needs a UTF-8 locale: set LC_ALL=C.UTF-8"),
)
_BLOCK = re.compile(r"^\[(ERROR|WARNING)\]: (.*?)(?=^\[(?:ERROR|WARNING)\]: |\Z)", re.DOTALL | re.MULTILINE)
_ORIGIN = re.compile(r"^Origin: (.+?)\s*$", re.MULTILINE)


def host_error(result: dict[str, object], output: str = "") -> str:
    """Why Ansible could not work on a host.

    `result` is what its task returned, `output` what was printed for it, which may name a place in the inventory.
    """
    text = _one_line(str(result.get("msg") or "the task failed without a message"))
    while (shorter := re.sub(r"^(?:Task|Action|Module) failed: ", "", text)) != text:
        text = shorter
    said = [text, *(str(result.get(key, "")) for key in ("module_stderr", "module_stdout"))]
    known = _known(_HOST_ERRORS, "\n".join(said))
    message = known.format(text=text) if known else text
    places = [place for place in _ORIGIN.findall(output) if not re.search("/(ansible_collections|playbooks)/", place)]
    return f"{message} ({places[-1]})" if places else message


def run_error(output: str, limit: str | None, rc: int) -> str:
    """Why a run reached no host at all, from what Ansible printed outside of tasks and its exit status."""
    output = output.replace("\r", "")
    known = _known(_RUN_ERRORS, output)
    if known:
        return known.format(limit=f" {limit}" if limit else "")
    blocks = _BLOCK.findall(output)
    errors = [text for kind, text in blocks if kind == "ERROR"]
    if errors:
        return _with_origin(errors[-1])
    unread = [text for _, text in blocks if text.startswith("Failed to parse inventory with")]
    # Every inventory plugin has had its try; the one that got as far as a line knows best what is wrong.
    placed = [text for text in unread if re.search(r"^Origin: .*:\d+:\d+", text, re.MULTILINE)]
    if unread:
        text = re.sub(r"^Failed to parse inventory with '\w+' plugin: ", "", (placed or unread)[-1])
        return "the inventory cannot be read: " + _with_origin(text)
    if rc:
        return f"Ansible failed with exit status {rc}: {_one_line(output)[-500:] or 'it printed nothing'}"
    return "no host to work on: the inventory is empty, or its group is"


def _known(table: tuple[tuple[str, str], ...], text: str) -> str | None:
    for pattern, message in table:
        match = re.search(pattern, text, re.IGNORECASE)
        if match:
            caught = next((group for group in match.groups() if group), "")
            return message.replace("{0}", caught.strip().replace("{", "{{").replace("}", "}}"))
    return None


def _with_origin(text: str) -> str:
    """The first paragraph, on one line, and the place that Ansible names for it."""
    paragraph, _, rest = text.partition("\n\n")
    origin = _ORIGIN.search(rest) or _ORIGIN.search(paragraph)
    message = _one_line(_ORIGIN.sub("", paragraph))
    return f"{message} ({origin[1]})" if origin else message


def _one_line(text: str) -> str:
    return " ".join(text.split())
