"""A set of test hosts that ends with the process that made it."""

from __future__ import annotations

import atexit
import os
import re
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, TracebackType

from tests.testbed import machine, network, runs
from tests.testbed.errors import TestbedError
from tests.testbed.host import Host
from tests.testbed.image import Image, ensure_image
from tests.testbed.recipe import SUITE

HOST_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


class Testbed:
    """Makes hosts; a context manager that destroys them.

    They are also destroyed when the process ends, by itself or by SIGTERM or SIGHUP. What a process leaves
    that could not do so, the next Testbed with the same cache removes. Several may exist side by side, each with a
    network of its own. Methods may be called from several threads.
    """

    __test__ = False  # the name starts with Test, and pytest would try to collect it

    def __init__(self, label: str = "tests") -> None:
        """Prepare the machine. Raises TestbedError, with what to do about it, when it cannot carry hosts."""
        machine.check_privileges()
        self._cache = machine.cache_folder()
        try:
            self._cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TestbedError(f"cannot make {self._cache} ({error.strerror}): set SERVEWRIGHT_TEST_CACHE") from error
        machine.install_packages(self._cache)
        runs.sweep(self._cache)
        self._pool = network.pool()
        self._run, self._lock = runs.start(self._cache, label)
        self._network: network.Network | None = None
        self._hosts: dict[str, Host] = {}
        self._changing = threading.RLock()
        self._owner = os.getpid()
        atexit.register(self.close)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, self._end_by_signal)

    def __enter__(self) -> Testbed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def hosts(self) -> list[Host]:
        """The hosts that exist, on or off."""
        return list(self._hosts.values())

    def ensure_image(self, suite: str = SUITE) -> Image:
        """Build the image that hosts are made from, unless it is there."""
        return ensure_image(self._cache, suite)

    def boot(
        self,
        name: str,
        *,
        binds: Mapping[Path, str] | None = None,
        prepare: Callable[[Path], None] | None = None,
        suite: str = SUITE,
    ) -> Host:
        """Make a host and boot it.

        Args:
            name: its host name, unique in this testbed.
            binds: folders or files of this machine that it sees, read-only, and where.
            prepare: called with the root of its file system before the boot, to put files there.
            suite: of Debian, by its code name.

        Raises:
            HostDegraded: a unit failed; the host is gone again.
            TestbedError: it did not boot.
        """
        host = self._new_host(name, binds or {}, suite)
        try:
            if prepare is not None:
                prepare(host.root)
            host.boot()
        except BaseException:
            self.destroy(host)
            raise
        return host

    def destroy(self, host: Host) -> None:
        """Destroy one host. May be called again."""
        host.destroy()
        with self._changing:
            if self._hosts.get(host.name) is host:
                del self._hosts[host.name]

    def destroy_all(self) -> None:
        """Destroy all hosts; new ones can be made."""
        for host in self.hosts:
            self.destroy(host)

    def close(self) -> None:
        """Destroy everything this testbed made. May be called again."""
        # a forked child has this object too, and must not destroy the hosts of its parent
        if self._lock == -1 or os.getpid() != self._owner:
            return
        self.destroy_all()
        self._run.remove()
        os.close(self._lock)
        self._lock = -1
        atexit.unregister(self.close)

    def _new_host(self, name: str, binds: Mapping[Path, str], suite: str) -> Host:
        if not HOST_NAME.fullmatch(name):
            raise TestbedError(f"{name!r} cannot be a host name: use lower-case letters, digits and hyphens")
        image = self.ensure_image(suite)
        with self._changing:
            if name in self._hosts:
                raise TestbedError(f"there is a host {name} already")
            if self._network is None:
                subnet = network.claim(self._pool)
                self._run.record_network(subnet)
                self._network = network.open_network(subnet, self._run.switch)
            host = Host(
                name,
                self._network.next_address(host.address for host in self.hosts),
                folder=self._run.folder / "hosts" / name,
                control_path=self._run.sockets / f"{name}.ssh",
                image=image,
                network=self._network,
                binds=binds,
            )
            self._hosts[name] = host
        return host

    def _end_by_signal(self, number: int, frame: FrameType | None) -> None:
        # not by an exception: a test framework could take it for the failure of one test and go on
        if os.getpid() == self._owner:
            signal.signal(number, signal.SIG_IGN)
            self.close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
