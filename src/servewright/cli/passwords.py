"""Passwords that ansible-playbook asks for: asked here, since Ansible has no terminal of the user's."""

from __future__ import annotations

import getpass
import sys

# Options of ansible-playbook, what to ask for, and the prompt that Ansible will show.
_ASKED = (
    ({"-k", "--ask-pass"}, "SSH password: ", r"SSH password:\s*$"),
    ({"-K", "--ask-become-pass"}, "sudo password: ", r"BECOME password.*:\s*$"),
    ({"-J", "--ask-vault-pass", "--ask-vault-password"}, "Vault password: ", r"Vault password.*:\s*$"),
)


def answers(arguments: list[str]) -> dict[str, str]:
    """Passwords by the regular expression of the prompt, for every option among the arguments that asks for one.

    :raises ValueError: there is no terminal to ask on
    """
    found = {}
    for options, prompt, pattern in _ASKED:
        given = options.intersection(arguments)
        if given:
            if not sys.stdin.isatty():
                raise ValueError(
                    f"{given.pop()} needs a terminal to ask on: pass a file instead, for instance "
                    "-- --become-password-file FILE"
                )
            found[pattern] = getpass.getpass(prompt)
    return found
