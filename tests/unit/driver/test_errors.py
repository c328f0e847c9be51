"""Messages for what Ansible says about hosts; the texts are as ansible-core 2.19 and sudo 1.9 write them."""

from __future__ import annotations

import pytest

from servewright.driver.errors import host_error, run_error

SSH = "Task failed: Failed to connect to the host via ssh: "


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"msg": "Task failed: Missing sudo password"}, "sudo needs a password: give --ask-become-pass (-K)"),
        ({"msg": "Task failed: Incorrect sudo password"}, "sudo needs a password"),
        ({"msg": "MODULE FAILURE", "module_stderr": "sudo: a password is required\n"}, "sudo needs a password"),
        ({"msg": "MODULE FAILURE", "module_stdout": "/bin/sh: 1: sudo: not found\r\n"}, "there is no sudo"),
        (
            {"msg": "x", "module_stdout": "\r\njoe is not in the sudoers file.\r\n"},
            "sudo says no: joe is not in the sudoers file.",
        ),
        (
            {"msg": SSH + "joe@gpu1: Permission denied (publickey,password)."},
            "SSH refused the login (publickey,password)",
        ),
        ({"msg": SSH + "Host key verification failed."}, "its SSH host key is not known"),
        (
            {"msg": SSH + "@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@ Host key verification failed."},
            "its SSH host key is not the known one",
        ),
        (
            {"msg": SSH + "ssh: Could not resolve hostname gpu9: Name or service not known"},
            "the name gpu9 does not resolve",
        ),
        (
            {"msg": SSH + "ssh: connect to host 10.0.0.1 port 22: Connection timed out"},
            "no SSH connection: connect to host 10.0.0.1 port 22: Connection timed out",
        ),
        ({"msg": "The module interpreter '/usr/bin/python9' was not found."}, "there is no Python at /usr/bin/python9"),
        (
            {"msg": "MODULE FAILURE", "module_stderr": "/bin/sh: 1: /usr/bin/python3: not found\n"},
            "there is no Python at /usr/bin/python3",
        ),
        ({"msg": "Task failed: Attempting to decrypt but no vault secrets found."}, "--ask-vault-pass"),
        ({"msg": "Task failed: Action failed: a {brace} stays"}, "a {brace} stays"),
        ({}, "without a message"),
    ],
)
def test_the_message_says_what_to_do(result: dict[str, object], expected: str) -> None:
    assert expected in host_error(result)


def test_the_place_in_the_inventory_is_named_but_not_that_in_our_own_playbook() -> None:
    output = "[ERROR]: x\r\nOrigin: /p/ansible_collections/servewright/llm/playbooks/deploy.yml:5:7\r\n"

    assert host_error({"msg": "x"}, output) == "x"
    assert (
        host_error({"msg": "x"}, output + "Origin: /etc/inventory/llm.yml:4:18\r\n")
        == "x (/etc/inventory/llm.yml:4:18)"
    )


def test_of_several_failures_to_read_an_inventory_the_one_with_a_line_is_told() -> None:
    output = """[WARNING]: Failed to parse inventory with 'yaml' plugin: YAML parsing failed: no ':' here.

Failed to parse inventory with 'yaml' plugin.
Origin: /inventory/hosts.yml:3:5

[WARNING]: Failed to parse inventory with 'ini' plugin: Invalid host pattern 'all:'

Origin: /inventory/hosts.yml
[WARNING]: Unable to parse /inventory/hosts.yml as an inventory source
"""
    assert run_error(output, None, 0) == (
        "the inventory cannot be read: YAML parsing failed: no ':' here. (/inventory/hosts.yml:3:5)"
    )


def test_a_limit_without_hosts_is_quoted() -> None:
    output = "[ERROR]: Specified inventory, host pattern and/or --limit leaves us with no hosts to target."
    assert run_error(output, "gpu9", 1) == "no host of the inventory matches --limit gpu9"
