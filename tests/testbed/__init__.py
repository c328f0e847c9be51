"""Real systemd hosts for tests: Debian 12 in systemd-nspawn, reached over SSH, each on an address of its own.

    with Testbed() as testbed:
        host = testbed.boot("gpu1")
        host.run("systemctl --version")

Runs as root on Debian 12 or Ubuntu 24.04 and installs what it needs with apt. For people at a terminal there
is `python3 -m tests.testbed --help`. Tried on Debian 12; where Ubuntu 24.04 or
pure cgroup v2 takes another path, the code says what that rests on.
"""

from tests.testbed.errors import CommandFailed, HostDegraded, TestbedError
from tests.testbed.host import Host
from tests.testbed.testbed import Testbed

__all__ = ["CommandFailed", "Host", "HostDegraded", "Testbed", "TestbedError"]
