"""Real systemd hosts for tests: Debian 12 in systemd-nspawn, reached over SSH, each on an address of its own.

    with Testbed() as testbed:
        host = testbed.boot("gpu1")
        host.run("systemctl --version")

Runs as root on Debian 12 or Ubuntu 24.04 and installs what it needs with apt. For people at a terminal there
is `python3 -m tests.testbed --help`. Tried on Debian 12 with cgroup v1 and v2 side by side; where Ubuntu
24.04 or pure cgroup v2 takes another path, the code says that it is written from the documentation.
"""

from tests.testbed.errors import CommandFailed, HostDegraded, TestbedError
from tests.testbed.host import Host
from tests.testbed.testbed import Testbed

__all__ = ["CommandFailed", "Host", "HostDegraded", "Testbed", "TestbedError"]
