"""What systemd's manager hands to every service of the host."""

from __future__ import annotations

from .. import truth
from ..surroundings import host
from .check import fatal


def environment(subject):
    """No variable that the release does not declare reaches its process: the gates would fail it, and the way back."""
    names = truth.undeclared(subject.release, host.manager_environment())
    if not names:
        return []
    return [
        fatal(
            "systemd hands variables to every service that are not declared: {}".format(", ".join(names)),
            "declare under environment what the engine is to have; take the others away with 'systemctl "
            "unset-environment {}', or, where they stay, out of DefaultEnvironment= in /etc/systemd/system.conf and "
            "system.conf.d with a 'systemctl daemon-reexec'".format(" ".join(names)),
        )
    ]
