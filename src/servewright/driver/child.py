"""The process that ansible-runner starts: ansible-playbook, run by the Python that runs servewright.

A search of PATH could find another installation of Ansible, with another collection.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import sys
import termios
from pathlib import Path


def main() -> None:
    """`child.py PIDFILE ARGUMENT...`: write the process id, then be ansible-playbook with the arguments."""
    pid_file, *arguments = sys.argv[1:]
    Path(pid_file).write_text(str(os.getpid()), encoding="ascii")
    # When servewright is killed, its end of the terminal closes and SIGHUP comes. ansible-runner has it ignored,
    # and Ansible's workers, each in a session of its own, only learn of a SIGTERM.
    signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    # Ansible breaks its messages at the width of the terminal, and a path broken in two is of no use.
    fcntl.ioctl(sys.stdout.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, 1000, 0, 0))
    # ansible-runner turns the check off where the variable is not set; ansible.cfg decides here.
    if not os.environ.get("ANSIBLE_HOST_KEY_CHECKING"):
        os.environ.pop("ANSIBLE_HOST_KEY_CHECKING", None)

    from ansible.cli.playbook import main as ansible_playbook

    ansible_playbook(["ansible-playbook", *arguments])


if __name__ == "__main__":
    main()
